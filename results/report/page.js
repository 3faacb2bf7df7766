// Draws the charts of a report from the JSON in the element "data". See type drawing in drawing.go for what it holds.
(() => {
	'use strict';
	const data = JSON.parse(document.getElementById('data').textContent);
	const runs = data.runs, several = runs.length > 1;
	const ALL = 'all operations';

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
	const percentiles = [['p50', 'p50'], ['p99', 'p99'], ['p99.9', 'p999'], ['max', 'max']];
	const darkScheme = matchMedia('(prefers-color-scheme: dark)');
	let printing = false;
	const theme = () => !printing && darkScheme.matches ? themes.dark : themes.light;

	// Figures as text.
	const digits = (v) => v === 0 ? '0' : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString('en-US') :
		String(Number(v.toPrecision(3)));
	const micros = (us) => us < 1e3 ? digits(us) + ' µs' : us < 1e6 ? digits(us / 1e3) + ' ms' : digits(us / 1e6) + ' s';
	const share = (x) => x <= 1 ? '0 %' : Number((100 - 100 / x).toFixed(Math.max(0, Math.ceil(Math.log10(x)) - 2) +
		(Number.isInteger(Math.log10(x)) ? 0 : 1))) + ' %';
	const escape = echarts.format.encodeHTML;

	// A time in seconds, or in minutes and hours where the span is long.
	const clock = (s, span) => {
		if (span <= 300) return digits(s);
		const sign = s < 0 ? '−' : '', t = Math.abs(Math.round(s)), two = (n) => String(n).padStart(2, '0');
		return t < 3600 && span < 7200 ? sign + Math.floor(t / 60) + ':' + two(t % 60) :
			sign + Math.floor(t / 3600) + ':' + two(Math.floor(t / 60) % 60) + ':' + two(t % 60);
	};
	const clockUnit = (span) => span <= 300 ? 's' : span < 7200 ? 'min:s' : 'h:min:s';
	const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200];
	const timeStep = (span, most) => steps.find((s) => span / s <= most) || Math.ceil(span / most / 86400) * 86400;

	// What the controls choose.
	const first = Math.min(0, ...runs.flatMap((r) => r.from));
	const last = Math.max(1, ...runs.flatMap((r) => r.to));
	const measured = () => {
		const spans = runs.flatMap((r) => r.phases).filter((p) => p.name === 'run' || p.name === 'warmup');
		if (!spans.length) return [first, last];
		return [Math.min(...spans.map((p) => p.from)), Math.max(...spans.map((p) => p.to))];
	};
	const kinds = [...new Set(data.groups.flatMap((g) => g.latencies.map((l) => l.time)))].sort(); // response time first
	const ops = [...new Set(data.groups.flatMap((g) => g.latencies.map((l) => l.op)))]
		.sort((a, b) => (b === ALL) - (a === ALL));
	// Response time can be compared only if all results have it.
	const allHave = (time) => data.groups.every((g) => {
		const having = new Set(g.latencies.filter((l) => l.time === time).map((l) => l.run)).size;
		return !having || having === new Set(g.latencies.map((l) => l.run)).size;
	});
	const state = { op: ops[0], time: kinds.find(allHave) || 'service' };
	[state.from, state.to] = measured();

	// latencyOf returns the latencies of the chosen operation in a run. A group without that operation shows all of its
	// own; a closed loop has service time only.
	const latencyOf = (group, run, op = state.op, time = state.time) => {
		const all = group.latencies.filter((l) => l.run === run);
		const ofTime = all.some((l) => l.time === time) ? all.filter((l) => l.time === time) : all;
		return ofTime.find((l) => l.op === op) || ofTime.find((l) => l.op === ALL) || ofTime[0];
	};
	const runName = (run) => several ? runs[run].letter + ' ' : '';
	const groupName = (group) => data.groups.length > 1 ? group.name + ': ' : '';

	// styleOf gives line k of a run its colour and dash. With several results the colour says which, else which line.
	const styleOf = (run, k) => several ?
		{ color: theme().colours[run % 8], type: dashes[k % 8] } :
		{ color: theme().colours[k % 8], type: dashes[k % 8] };

	// middles returns the points of a line over time, those in view and one on either side of them.
	const middles = (run, values, keep = (v) => v) => {
		const { from, to } = runs[run], points = [];
		for (let i = 0; i < from.length; i++) {
			const next = i + 1 < from.length ? from[i + 1] : from[i], before = i ? to[i - 1] : to[i];
			if (next > state.to && from[i] > state.to || before < state.from && to[i] < state.from) continue;
			points.push([(from[i] + to[i]) / 2, keep(values[i])]);
		}
		return points;
	};
	const orNone = (us) => us || null; // no latency

	// Charts. Each has a figure with a caption, a legend of buttons, and the canvas.
	const charts = [];
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
		const c = { figure, caption, legend, canvas, describe, hidden: new Set(), point: -1 };
		c.chart = echarts.init(canvas, null, { devicePixelRatio: Math.max(2, devicePixelRatio) });
		canvas.addEventListener('keydown', (e) => move(c, e));
		canvas.addEventListener('blur', () => c.chart.dispatchAction({ type: 'hideTip' }));
		charts.push(c);
		draw(c);
	};

	// draw draws a chart anew. describe returns its title, what it is about, its axes and its lines; a line is
	// {name, points, color, type, run} with points of x and y.
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
			symbolSize: l.symbol ? 8 : 5, showSymbol: true, connectNulls: false, z: 3,
			lineStyle: { color: l.color, type: l.type, width: l.width || 1.6 }, itemStyle: { color: l.color },
			emphasis: { disabled: true }, clip: true, ...(i === 0 ? d.marks && { markLine: d.marks(t) } : {}),
			...(i === 0 && d.areas ? { markArea: d.areas(t, c.canvas.clientWidth) } : {}),
		}));
		if (d.heat) series.unshift(d.heat(t));
		const text = { color: t.soft, fontSize: 11 };
		const axis = { nameTextStyle: text, axisLabel: { ...text, hideOverlap: true }, axisLine: { show: true,
			onZero: false, lineStyle: { color: t.rule } }, axisTick: { lineStyle: { color: t.rule } },
			splitLine: { lineStyle: { color: t.rule, opacity: 0.55 } } };
		const x = typeof d.x.options === 'function' ? d.x.options(narrow) : d.x.options;
		c.chart.setOption({
			animation: false, backgroundColor: t.ground, textStyle: { fontFamily: 'inherit' },
			grid: { left: 58, right: narrow ? 12 : 22, top: d.top || 26, bottom: 44 }, // the same, so that times stand in line
			xAxis: { ...axis, name: d.x.name, nameLocation: 'middle', nameGap: 26, ...x,
				axisTick: { ...axis.axisTick, ...(x.axisTick || {}) },
				axisLabel: { ...axis.axisLabel, ...(x.axisLabel || {}) },
				splitLine: { show: !!x.split, lineStyle: axis.splitLine.lineStyle } },
			yAxis: { ...axis, name: d.y.name, nameLocation: 'end', nameGap: 10, nameTextStyle: { ...text, align: 'left' },
				...d.y.options, axisLabel: { ...axis.axisLabel, ...(d.y.options.axisLabel || {}) } },
			tooltip: {
				trigger: 'axis', confine: true, backgroundColor: t.ground, borderColor: t.rule, padding: 8,
				textStyle: { color: t.text, fontSize: 12 }, axisPointer: { lineStyle: { color: t.soft } },
				formatter: (items) => tip(d, items.filter((i) => i.seriesType === 'line')),
			},
			series,
		}, { notMerge: true });
	};

	const drawLegend = (c, d, t) => {
		c.legend.replaceChildren();
		for (const l of d.lines.length > 1 || several ? d.lines : []) {
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
		if (d.scale) {
			const s = c.legend.appendChild(document.createElement('span'));
			s.className = 'scale';
			const bar = document.createElement('i');
			bar.style.background = `linear-gradient(90deg, ${t.heat.map((h) => `rgb(${h})`).join(', ')})`;
			s.append(d.scale[0], bar, d.scale[1]);
		}
	};

	const tip = (d, items) => {
		if (!items.length) return '';
		const x = items[0].axisValue;
		const rows = items.filter((i) => i.value[1] !== null && i.value[1] !== undefined).map((i) =>
			`<tr><td style="padding-right:12px">${i.marker}${escape(i.seriesName)}</td>` +
			`<td style="text-align:right">${escape(d.y.text(i.value[1]))}</td></tr>`);
		return `<b>${escape(d.x.text(x))}</b><table style="border:0;margin:4px 0 0">${rows.join('')}</table>`;
	};

	// move handles arrow keys: it shows and speaks the next point of the first line that is shown.
	const move = (c, e) => {
		const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
		if (!by || !c.shown.length) return;
		e.preventDefault();
		const points = c.shown[0].points;
		c.point = Math.min(points.length - 1, Math.max(0, c.point + by));
		const seriesIndex = c.chart.getOption().series.findIndex((s) => s.type === 'line');
		c.chart.dispatchAction({ type: 'showTip', seriesIndex, dataIndex: c.point });
		const d = c.describe(), x = points[c.point][0];
		document.getElementById('spoken').textContent = d.x.text(x) + ': ' + c.shown.map((l) => {
			const p = l.points.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a, [Infinity, null]);
			return p[1] === null ? '' : l.name + ' ' + d.y.text(p[1]);
		}).filter(Boolean).join(', ');
	};

	// Axes.
	const timeAxis = () => {
		const span = state.to - state.from;
		return {
			name: `time since the measured part began (${clockUnit(span)})`,
			text: (s) => `${clock(s, span)} ${span <= 300 ? 's' : ''}`.trim(),
			options: (narrow) => {
				const step = timeStep(span, narrow ? 5 : 10), customValues = [];
				for (let k = Math.ceil(state.from / step - 1e-6); k * step <= state.to + 1e-6 * step; k++) {
					customValues.push(k * step);
				}
				return {
					type: 'value', min: state.from, max: state.to, axisTick: { customValues },
					axisLabel: { customValues, formatter: (s) => clock(s, span) },
				};
			},
		};
	};
	const latencyAxis = (name, values) => {
		let low = Infinity, high = 0;
		for (const v of values) if (v > 0) { low = Math.min(low, v); high = Math.max(high, v); }
		if (!high) { low = 100; high = 1000; }
		low = 10 ** Math.floor(Math.log10(low) + 1e-9);
		high = 10 ** Math.ceil(Math.log10(high) - 1e-9);
		if (high <= low) high = low * 10;
		return {
			name, text: micros, low, high,
			options: { type: 'log', min: low, max: high, axisLabel: { formatter: micros } },
		};
	};
	const plainAxis = (unit) => ({
		name: unit, text: (v) => digits(v) + ' ' + unit,
		options: { type: 'value', min: 0, ...(unit === '%' ? { max: 100 } : {}), axisLabel: { formatter: digits } },
	});

	// markLine draws marks, {at, name, run}. Marks of several results at one place share a line and its label; a mark of
	// all results needs no letters.
	const markLine = (t, marks) => {
		const places = new Map();
		for (const m of marks) {
			const p = places.get(m.at) || { names: new Map(), runs: new Set() };
			p.names.set(m.name, [...(p.names.get(m.name) || []), several ? runs[m.run].letter : ''].filter(Boolean));
			places.set(m.at, { ...p, runs: p.runs.add(m.run) });
		}
		return {
			symbol: 'none', silent: true, animation: false,
			data: [...places].map(([at, p]) => ({
				xAxis: at, lineStyle: { color: several && p.runs.size === 1 ? t.colours[[...p.runs][0] % 8] : t.text,
					type: [4, 3], width: 1.2 },
				label: { show: true, position: 'end', distance: 2, color: t.text, fontSize: 10, textBorderColor: t.ground,
					textBorderWidth: 3, formatter: [...p.names].map(([name, of]) =>
						of.length && of.length < runs.length ? of.join(' ') + ' ' + name : name).join(', ') },
			})),
		};
	};
	const timeMarks = (only) => (t) => markLine(t, runs.flatMap((r, run) => only === undefined || only === run ?
		r.events.map((e, i) => ({ at: e.at, name: String(i + 1), run })) : [])
		.filter((m) => m.at >= state.from && m.at <= state.to));
	const eventNames = (run) => runs[run].events.length && runs[run].events.length < 9 ? 'Events: ' +
		runs[run].events.map((e, i) => `${i + 1} ${e.name}`).join(', ') + '.' : '';
	const phaseNames = { load: 'load', warmup: 'warm-up', verify: 'read back' };
	const phaseAreas = (run) => (t, width) => ({
		silent: true, animation: false, itemStyle: { color: t.faint }, label: { color: t.soft, fontSize: 11,
			position: 'insideTop' },
		data: runs[run].phases.filter((p) => phaseNames[p.name] && p.to > state.from && p.from < state.to).map((p) => [
			{
				xAxis: Math.max(p.from, state.from),
				// A name that is wider than its phase would stand on the others.
				name: (p.to - p.from) * width > 70 * (state.to - state.from) ? phaseNames[p.name] : '',
			}, { xAxis: Math.min(p.to, state.to) }]),
	});

	// The heat map is a picture that a custom series stretches over the plot: a column of pixels for each column of
	// time, a row for each row of latency. The strength of a cell is its operations per second, on a log scale.
	const rates = (l) => {
		let low = Infinity, high = 0;
		l.heat.forEach((h, i) => {
			const length = runs[l.run].to[i] - runs[l.run].from[i];
			if (!h || !(length > 0)) return;
			for (let k = 1; k < h.length; k++) if (h[k]) {
				low = Math.min(low, h[k] / length); high = Math.max(high, h[k] / length);
			}
		});
		return [low, high];
	};
	const colour = (stops, v) => {
		const at = Math.min(Math.max(v, 0), 1) * (stops.length - 1), i = Math.min(Math.floor(at), stops.length - 2);
		return stops[i].map((c, k) => Math.round(c + (stops[i + 1][k] - c) * (at - i)));
	};
	const picture = (l, t, y, [low, high]) => {
		const { from, to } = runs[l.run], canvas = document.createElement('canvas');
		const bottom = Math.round(Math.log10(y.low) * data.heat_rows), top = Math.round(Math.log10(y.high) * data.heat_rows);
		canvas.width = 2400;
		canvas.height = 10 * (top - bottom);
		const g = canvas.getContext('2d'), scale = canvas.width / (state.to - state.from);
		l.heat.forEach((h, i) => {
			if (!h || to[i] <= state.from || from[i] >= state.to) return;
			const left = Math.round((from[i] - state.from) * scale), right = Math.round((to[i] - state.from) * scale);
			for (let k = 1; k < h.length; k++) {
				if (!h[k]) continue;
				const rate = h[k] / (to[i] - from[i]);
				const v = high > low ? Math.log(rate / low) / Math.log(high / low) : 1;
				g.fillStyle = `rgb(${colour(t.heat, v)})`;
				g.fillRect(left, 10 * (top - (h[0] + k)), Math.max(right - left, 1), 10);
			}
		});
		return canvas;
	};
	const heatSeries = (l, y, range) => (t) => {
		const image = picture(l, t, y, range);
		return {
			type: 'custom', silent: true, clip: true, z: 1, tooltip: { show: false }, encode: { x: [0, 1], y: [2, 3] },
			data: [[state.from, state.to, y.low, y.high]],
			renderItem: (params, api) => {
				const [left, bottom] = api.coord([state.from, y.low]), [right, top] = api.coord([state.to, y.high]);
				return { type: 'image', style: { image, x: left, y: top, width: right - left, height: bottom - top } };
			},
		};
	};

	const timeTitle = (l) => l.time === 'response' ? 'Response time' : 'Service time';

	// The percentile curves of several results, or of more operations than one can tell apart, are of one operation.
	const choosing = several || ops.length > 5;

	// The charts themselves, in the order of the page.
	for (const group of data.groups) {
		const of = runs.map((_, i) => i).filter((i) => group.latencies.some((l) => l.run === i));
		if (!group.latencies.some((l) => l.percentiles.length)) continue;
		add('percentile-charts', true, () => {
			const lines = [];
			for (const run of of) {
				const shownOps = choosing ? [latencyOf(group, run).op] :
					[...new Set(group.latencies.map((l) => l.op))].sort((a, b) => (b === ALL) - (a === ALL));
				shownOps.forEach((op, k) => {
					for (const l of group.latencies.filter((l) => l.run === run && l.op === op && l.percentiles.length)) {
						const points = [];
						for (let i = 0; i < l.percentiles.length; i += 2) {
							points.push([l.percentiles[i], l.percentiles[i + 1]]);
						}
						const both = group.latencies.some((o) => o.run === run && o.time !== l.time);
						lines.push({
							name: runName(run) + op + (both ? ', ' + l.time : ''), points,
							color: theme().colours[(several ? run : k) % 8],
							type: l.time === 'service' && both ? dashes[1] : several || k === 0 ? 'solid' : dashes[[0, 3, 2, 4][k % 4]],
						});
					}
				});
			}
			const y = latencyAxis('latency', lines.flatMap((l) => l.points.map((p) => p[1])));
			const most = Math.max(10, ...lines.flatMap((l) => l.points.map((p) => p[0])));
			const op = choosing ? latencyOf(group, of[0]).op : '';
			return {
				title: groupName(group) + 'Latency by percentile' + (op ? ' of ' + op : ''), lines, y,
				x: {
					name: 'share of operations that were not slower', text: share,
					options: { type: 'log', min: 1, max: most, split: true, axisLabel: { formatter: (v) =>
						Number.isInteger(Math.round(1e6 * Math.log10(v)) / 1e6) ? share(v) : '' } },
				},
			};
		});
	}

	for (const group of data.groups) {
		const of = runs.map((_, i) => i).filter((i) => group.latencies.some((l) => l.run === i && l.max.some((v) => v)));
		const axisOf = (heat) => latencyAxis('latency', of.flatMap((run) => {
			const l = latencyOf(group, run), { from, to } = runs[run], seen = (i) => to[i] > state.from && from[i] < state.to;
			const top = heat ? l.max : l.p999, cells = heat && l.heat || [];
			return [...top, ...l.p50].filter((_, i) => seen(i % top.length)).concat(cells.filter((h, i) => h && seen(i))
				.map((h) => 10 ** (h[0] / data.heat_rows)));
		}));
		if (several && of.length > 1) {
			add('latency-charts', true, () => ({
				title: `${groupName(group)}${timeTitle(latencyOf(group, of[0]))} of ${latencyOf(group, of[0]).op}, all results`,
				x: timeAxis(), y: axisOf(false), marks: timeMarks(),
				lines: of.flatMap((run) => percentiles.slice(0, 3).map(([name, key], k) => ({
					name: runName(run) + name + (latencyOf(group, run).time === latencyOf(group, of[0]).time ? '' :
						', ' + latencyOf(group, run).time + ' time'),
					points: middles(run, latencyOf(group, run)[key], orNone), ...styleOf(run, k),
				}))),
			}));
		}
		for (const run of of) {
			add('latency-charts', true, () => {
				const l = latencyOf(group, run), t = theme(), y = axisOf(true);
				const range = l.heat && of.map((r) => latencyOf(group, r)).filter((o) => o.heat).map(rates)
					.reduce((a, b) => [Math.min(a[0], b[0]), Math.max(a[1], b[1])]);
				return {
					title: `${runName(run)}${groupName(group)}${timeTitle(l)} of ${l.op}`, x: timeAxis(), y,
					about: l.heat ? eventNames(run) : 'The file has no histograms over time, so there is no heat map, ' +
						'and seconds that are drawn together have the highest percentile of any of them.',
					heat: l.heat && heatSeries(l, y, range), marks: timeMarks(run), areas: phaseAreas(run), top: 38,
					scale: range && range.map((v) => `${digits(Number(v.toPrecision(2)))}/s`),
					lines: percentiles.map(([name, key], k) => ({
						name, points: middles(run, l[key], orNone), color: t.lines[name], type: ['solid', 'solid', [5, 3], [1, 3]][k],
						width: name === 'max' ? 1.3 : 1.7,
					})),
				};
			});
		}
	}

	const addPanel = (parent, panel, prefix) => add(parent, false, () => ({
		title: prefix + panel.title, about: panel.about, mayBeQuiet: true, x: timeAxis(), y: plainAxis(panel.unit),
		marks: timeMarks(),
		areas: several ? undefined : phaseAreas(0),
		lines: (() => {
			const names = [...new Set(panel.traces.map((t) => t.name))];
			return panel.traces.map((t) => ({
				name: runName(t.run) + t.name, points: middles(t.run, t.values), ...styleOf(t.run, names.indexOf(t.name)),
			}));
		})(),
	}));
	for (const group of data.groups) for (const p of group.panels) addPanel('group-charts', p, groupName(group));
	for (const p of data.target) addPanel('target-charts', p, '');

	for (const group of [...new Set(data.curves.map((c) => c.group))]) {
		add('curve-charts', true, () => {
			const curves = data.curves.filter((c) => c.group === group);
			const lines = curves.flatMap((c) => percentiles.map(([name, key], k) => ({
				name: runName(c.run) + name, ...styleOf(c.run, k), symbol: 'circle',
				points: c.steps.filter((s) => s[key]).map((s) => ({
					value: [s.rate, s[key]],
					itemStyle: s.why ? { color: theme().ground, borderColor: styleOf(c.run, k).color, borderWidth: 2 } : undefined,
				})),
			})));
			const most = Math.max(...curves.flatMap((c) => c.steps.map((s) => s.rate)), 1);
			const slo = curves.map((c) => c.slo).find(Boolean);
			return {
				title: (data.groups.length > 1 ? group + ': ' : '') + 'Latency against rate' + (slo ? `, SLO ${slo}` : ''), top: 38,
				x: { name: 'offered rate (operations per second)', text: (v) => digits(v) + '/s',
					options: { type: 'value', min: 0, max: 1.1 * most, axisLabel: { formatter: digits, showMaxLabel: false } } },
				y: latencyAxis('latency', lines.flatMap((l) => l.points.map((p) => p.value[1]))), lines,
				marks: (t) => markLine(t, curves.flatMap((c) => c.marks.map((m) => ({ ...m, run: c.run })))),
			};
		});
	}

	// Controls. Both forms choose the operation and the kind of time; the second one chooses the span, too.
	const redraw = () => charts.forEach(draw);
	const choice = (form, label, key, values) => {
		if (values.length < 2) return;
		const l = form.appendChild(document.createElement('label'));
		l.append(label + ' ');
		const s = l.appendChild(document.createElement('select'));
		s.name = key;
		for (const v of values) s.add(new Option(v, v));
		s.value = state[key];
		s.addEventListener('change', () => {
			state[key] = s.value;
			document.querySelectorAll(`select[name=${key}]`).forEach((o) => { o.value = s.value; });
			redraw();
		});
	};
	for (const form of document.querySelectorAll('form.controls')) {
		form.addEventListener('submit', (e) => e.preventDefault());
		const time = form.dataset.for === 'time';
		if (time || choosing) choice(form, 'Operation', 'op', ops);
		if (time) choice(form, 'Time', 'time', kinds);
		if (!time || !runs.some((r) => r.from.length > 1)) continue;
		const least = (last - first) / 200;
		const ends = ['from', 'to'].map((key) => {
			const l = form.appendChild(document.createElement('label'));
			l.append(key);
			const input = l.appendChild(document.createElement('input'));
			const output = l.appendChild(document.createElement('output'));
			Object.assign(input, { type: 'range', min: first, max: last, step: 'any', name: key });
			// Arrow keys move by a hundredth of the span.
			input.step = (last - first) / 1000;
			input.addEventListener('input', () => {
				state[key] = Number(input.value);
				if (key === 'from') state.from = Math.max(first, Math.min(state.from, state.to - least));
				else state.to = Math.min(last, Math.max(state.to, state.from + least));
				show();
			});
			return () => { input.value = state[key]; output.textContent = timeAxis().text(Number(state[key].toFixed(1))); };
		});
		let waiting = 0;
		const show = () => {
			ends.forEach((e) => e());
			cancelAnimationFrame(waiting);
			waiting = requestAnimationFrame(redraw);
		};
		for (const [name, span] of [['measured part', measured()], ['everything', [first, last]]]) {
			const b = form.appendChild(document.createElement('button'));
			b.type = 'button';
			b.textContent = name;
			b.addEventListener('click', () => { [state.from, state.to] = span; show(); });
		}
		ends.forEach((e) => e());
	}

	const watch = new ResizeObserver((entries) => {
		for (const e of entries) {
			const c = charts.find((c) => c.canvas === e.target);
			const { width, height } = e.contentRect;
			if (printing || !width || width === c.chart.getWidth() && height === c.chart.getHeight()) continue;
			c.chart.resize();
			draw(c);
		}
	});
	charts.forEach((c) => watch.observe(c.canvas));
	darkScheme.addEventListener('change', redraw);

	// Paper: light, and as wide as an A4 page inside its margins.
	addEventListener('beforeprint', () => {
		printing = true;
		document.querySelectorAll('details').forEach((d) => { d.open = true; });
		for (const c of charts) {
			c.chart.resize(c.figure.classList.contains('wide') ? { width: 680, height: 250 } : { width: 330, height: 170 });
		}
		redraw();
	});
	addEventListener('afterprint', () => {
		printing = false;
		for (const c of charts) c.chart.resize({ width: 'auto', height: 'auto' });
		redraw();
	});
	document.documentElement.dataset.drawn = String(charts.length);
})();
