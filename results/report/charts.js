// Draws charts with a caption, a legend and keys, for all pages. What a page draws stands in the script that follows.
const charts = (() => {
	'use strict';

	// Colours that colour-blind people can tell apart (after Okabe and Ito), in the order of page.css; dashes tell lines
	// apart without any. The heat is one hue, from close to the ground to far from it.
	const themes = {
		light: {
			ground: '#ffffff', text: '#1c2430', soft: '#566173', rule: '#d7dde4', faint: 'rgba(86,97,115,0.10)',
			colours: ['#0072b2', '#d55e00', '#00875f', '#b0508a', '#8a6d00', '#2a9fd6', '#1c2430', '#6a4fb3'],
			heat: [[226, 238, 248], [158, 199, 230], [88, 150, 200], [35, 98, 155]],
			lines: { p50: '#000000', p99: '#b33c00', 'p99.9': '#b33c00', max: '#5c5c5c' },
		},
		dark: {
			ground: '#12161c', text: '#e6eaf0', soft: '#a3afbf', rule: '#333d4a', faint: 'rgba(163,175,191,0.12)',
			colours: ['#56b4e9', '#f0904a', '#35c795', '#e39ac6', '#e6c84a', '#9ad5f7', '#e6eaf0', '#b9a5f0'],
			heat: [[24, 42, 62], [29, 73, 114], [38, 110, 168], [86, 160, 216]],
			lines: { p50: '#ffffff', p99: '#ffab70', 'p99.9': '#ffab70', max: '#c9c9c9' },
		},
	};
	const dashes = ['solid', [7, 4], [2, 3], [9, 3, 2, 3], [4, 2], [12, 4], [1, 2], [6, 2, 1, 2, 1, 2]];
	const darkScheme = matchMedia('(prefers-color-scheme: dark)');
	let printing = false;
	const theme = () => !printing && darkScheme.matches ? themes.dark : themes.light;

	// Figures as text.
	const digits = (v) => v === 0 ? '0' : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString('en-US') :
		String(Number(v.toPrecision(3)));
	const timeUnit = (us) => us < 1e3 ? ['µs', 1] : us < 1e6 ? ['ms', 1e3] : ['s', 1e6];
	const micros = (us) => {
		const [unit, factor] = timeUnit(us);
		return digits(us / factor) + ' ' + unit;
	};
	const escape = echarts.format.encodeHTML;

	// Charts. Each has a figure with a caption, a legend of buttons, and the canvas.
	const all = [];
	const add = (parent, wide, describe) => {
		const figure = document.createElement('figure');
		figure.className = wide ? 'wide' : '';
		const caption = figure.appendChild(document.createElement('figcaption'));
		const legend = figure.appendChild(document.createElement('div'));
		legend.className = 'legend';
		const canvas = figure.appendChild(document.createElement('div'));
		canvas.className = 'chart';
		canvas.tabIndex = 0;
		canvas.setAttribute('role', 'img');
		document.getElementById(parent).appendChild(figure);
		const c = { figure, caption, legend, canvas, describe, hidden: new Set(), point: -1, height: 0 };
		c.height = describe().height;
		if (c.height) canvas.style.height = c.height + 'px';
		c.chart = echarts.init(canvas, null, { devicePixelRatio: Math.max(2, devicePixelRatio) });
		canvas.addEventListener('keydown', (e) => move(c, e));
		canvas.addEventListener('blur', () => c.chart.dispatchAction({ type: 'hideTip' }));
		all.push(c);
		draw(c);
	};

	// draw draws a chart anew. describe returns its title, what it is about, its axes and its lines; a line is
	// {name, points, color, type} with points of x and y. What is no line comes as series of the library, with signs for
	// the legend, a tip, and stops for the arrow keys.
	const draw = (c) => {
		const t = theme(), d = c.describe(), narrow = c.canvas.clientWidth < 480;
		c.caption.replaceChildren();
		const title = c.caption.appendChild(document.createElement('b'));
		title.textContent = d.title;
		// Lines that are 0 all the time need no picture.
		const quiet = Boolean(d.mayBeQuiet) && d.lines.every((l) => l.points.every((p) => !p[1]));
		c.figure.classList.toggle('quiet', quiet);
		if (d.about || quiet) {
			const about = c.caption.appendChild(document.createElement('div'));
			about.className = 'about';
			about.textContent = quiet ? 'All 0 in this span of time.' : d.about;
		}
		c.canvas.setAttribute('aria-label', `${d.title}. ${d.y.name}, ${d.x.name}. ` +
			d.lines.map((l) => l.name).join(', '));
		drawLegend(c, d, t);
		const shown = d.lines.filter((l) => !c.hidden.has(l.name));
		c.shown = shown;
		const series = shown.map((l, i) => ({
			type: 'line', name: l.name, data: l.points, symbol: l.symbol || (l.points.length < 3 ? 'circle' : 'none'),
			symbolSize: l.size || (l.symbol ? 8 : 5), showSymbol: true, connectNulls: false, z: 3,
			step: l.step, lineStyle: { color: l.color, type: l.type, width: l.width || 1.6 }, itemStyle: { color: l.color },
			emphasis: { disabled: true }, clip: true, ...(i === 0 ? d.marks && { markLine: d.marks(t) } : {}),
			...(i === 0 && d.areas ? { markArea: d.areas(t, c.canvas.clientWidth) } : {}),
		}));
		if (d.heat) series.unshift(d.heat(t));
		if (d.series) series.push(...d.series(t));
		const text = { color: t.soft, fontSize: 11 };
		const axis = { nameTextStyle: text, axisLabel: { ...text, hideOverlap: true }, axisLine: { show: true,
			onZero: false, lineStyle: { color: t.rule } }, axisTick: { lineStyle: { color: t.rule } },
			splitLine: { lineStyle: { color: t.rule, opacity: 0.55 } } };
		const x = typeof d.x.options === 'function' ? d.x.options(narrow) : d.x.options;
		c.chart.setOption({
			animation: false, backgroundColor: t.ground, textStyle: { fontFamily: 'inherit' },
			// The same for all charts over time, so that times stand in line.
			grid: { left: d.left ? d.left(narrow) : 58, right: narrow ? 12 : 22, top: d.top || 26, bottom: 44 },
			xAxis: { ...axis, name: d.x.name, nameLocation: 'middle', nameGap: 26, ...x,
				axisTick: { ...axis.axisTick, ...(x.axisTick || {}) },
				axisLabel: { ...axis.axisLabel, ...(x.axisLabel || {}) },
				splitLine: { show: !!x.split, lineStyle: axis.splitLine.lineStyle } },
			yAxis: { ...axis, name: d.y.name, nameLocation: 'end', nameGap: 10, nameTextStyle: { ...text, align: 'left' },
				...d.y.options, axisLabel: { ...axis.axisLabel, ...(d.y.options.axisLabel || {}) } },
			tooltip: {
				trigger: d.tip ? 'item' : 'axis', confine: true, backgroundColor: t.ground, borderColor: t.rule, padding: 8,
				textStyle: { color: t.text, fontSize: 12 }, axisPointer: { lineStyle: { color: t.soft } },
				formatter: d.tip || ((items) => tip(d, items.filter((i) => i.seriesType === 'line'))),
			},
			series,
		}, { notMerge: true });
	};

	const drawLegend = (c, d, t) => {
		c.legend.replaceChildren();
		for (const l of d.lines.length > 1 || d.named ? d.lines : []) {
			const b = c.legend.appendChild(document.createElement('button'));
			b.type = 'button';
			b.setAttribute('aria-pressed', String(!c.hidden.has(l.name)));
			const dash = Array.isArray(l.type) ? l.type.join(' ') : '';
			b.innerHTML = `<svg width="26" height="8" aria-hidden="true"><line x1="0" y1="4" x2="26" y2="4" ` +
				`stroke="${l.color}" stroke-width="2" stroke-dasharray="${dash}"/></svg>`;
			b.appendChild(document.createTextNode(l.name));
			b.addEventListener('click', () => {
				if (!c.hidden.delete(l.name)) c.hidden.add(l.name);
				const at = [...c.legend.children].indexOf(b);
				draw(c);
				c.legend.children[at].focus();
			});
		}
		for (const k of d.signs || []) {
			const s = c.legend.appendChild(document.createElement('span'));
			s.className = 'sign';
			const mark = s.appendChild(document.createElement('i'));
			mark.textContent = k.mark;
			mark.style.color = k.color;
			s.append(' ' + k.name);
		}
		if (d.scale) {
			const s = c.legend.appendChild(document.createElement('span'));
			s.className = 'scale';
			const bar = document.createElement('i');
			bar.style.background = `linear-gradient(90deg, ${t.heat.map((h) => `rgb(${h})`).join(', ')})`;
			s.append(d.scale[0], bar, d.scale[1]);
		}
	};

	// A point has x, y, and 1 if y is a lower bound.
	const valueText = (d, p) => (p[2] ? '≥ ' : '') + d.y.text(p[1]);

	const tip = (d, items) => {
		if (!items.length) return '';
		const x = items[0].axisValue;
		const rows = items.filter((i) => i.value[1] !== null && i.value[1] !== undefined).map((i) =>
			`<tr><td style="padding-right:12px">${i.marker}${escape(i.seriesName)}</td>` +
			`<td style="text-align:right">${escape(valueText(d, i.value))}</td></tr>`);
		return `<b>${escape(d.x.text(x))}</b><table style="border:0;margin:4px 0 0">${rows.join('')}</table>`;
	};

	// move handles arrow keys: it shows and speaks the next stop, or the next point of the first line that is shown.
	const move = (c, e) => {
		const d = c.describe();
		const by = { ArrowRight: 1, ArrowLeft: -1, ...(d.stops ? { ArrowDown: 1, ArrowUp: -1 } : {}) }[e.key];
		const points = d.stops || (c.shown.length ? c.shown[0].points : []);
		if (!by || !points.length) return;
		e.preventDefault();
		c.point = Math.min(points.length - 1, Math.max(0, c.point + by));
		const say = document.getElementById('spoken'), stop = points[c.point];
		if (d.stops) {
			c.chart.dispatchAction({ type: 'showTip', seriesIndex: stop.seriesIndex, dataIndex: stop.dataIndex });
			say.textContent = stop.text;
			return;
		}
		const seriesIndex = c.chart.getOption().series.findIndex((s) => s.type === 'line');
		c.chart.dispatchAction({ type: 'showTip', seriesIndex, dataIndex: c.point });
		const x = stop[0];
		say.textContent = d.x.text(x) + ': ' + c.shown.map((l) => {
			const p = l.points.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a, [Infinity, null]);
			return p[1] === null ? '' : l.name + ' ' + valueText(d, p);
		}).filter(Boolean).join(', ');
	};

	// plainAxis is a y axis that begins at 0.
	const plainAxis = (unit) => ({
		name: unit, text: (v) => digits(v) + ' ' + unit,
		options: { type: 'value', min: 0, ...(unit === '%' ? { max: 100 } : {}), axisLabel: { formatter: digits } },
	});

	// latencyAxis is an axis of latencies in microseconds. All its ticks have the unit of a typical one.
	const latencyAxis = (name, typical, options) => {
		const [unit, factor] = timeUnit(typical);
		return { name: `${name}, ${unit}`, text: micros,
			options: { ...options, axisLabel: { formatter: (us) => digits(us / factor) } } };
	};

	const redraw = () => all.forEach(draw);

	const watch = new ResizeObserver((entries) => {
		for (const e of entries) {
			const c = all.find((c) => c.canvas === e.target);
			const { width, height } = e.contentRect;
			if (printing || !width || width === c.chart.getWidth() && height === c.chart.getHeight()) continue;
			c.chart.resize();
			draw(c);
		}
	});
	darkScheme.addEventListener('change', redraw);

	// Paper: light, and as wide as an A4 page inside its margins.
	addEventListener('beforeprint', () => {
		printing = true;
		document.querySelectorAll('details').forEach((d) => { d.open = true; });
		for (const c of all) {
			c.chart.resize(c.figure.classList.contains('wide') ? { width: 680, height: c.height || 250 } :
				{ width: 330, height: 170 });
		}
		redraw();
	});
	addEventListener('afterprint', () => {
		printing = false;
		for (const c of all) c.chart.resize({ width: 'auto', height: 'auto' });
		redraw();
	});

	// ready is called when a page has all its charts.
	const ready = () => {
		all.forEach((c) => watch.observe(c.canvas));
		document.documentElement.dataset.drawn = String(all.length);
	};

	return { add, dashes, digits, escape, latencyAxis, plainAxis, ready, redraw, theme, timeUnit };
})();
