// Draws the charts of a report from the JSON in the element "data". See type drawing in drawing.go for what it holds.
(() => {
	'use strict';
	const { add: addChart, dashes, digits, latencyAxis, plainAxis, ready, redraw, theme } = charts;
	const data = JSON.parse(document.getElementById('data').textContent);
	const runs = data.runs, several = runs.length > 1;
	const ALL = 'all operations';
	const percentiles = [['p50', 'p50'], ['p99', 'p99'], ['p99.9', 'p999'], ['max', 'max']];

	const add = (parent, wide, describe) => addChart(parent, wide, () => ({ named: several, ...describe() }));

	// Figures as text.
	const share = (x) => x <= 1 ? '0 %' : Number((100 - 100 / x).toFixed(Math.max(0, Math.ceil(Math.log10(x)) - 2) +
		(Number.isInteger(Math.log10(x)) ? 0 : 1))) + ' %';

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
			points.push([(from[i] + to[i]) / 2, ...[keep(values[i])].flat()]);
		}
		return points;
	};
	// A latency has its value, null for none, and 1 if that is a lower bound.
	const bounded = (us) => [Math.abs(us) || null, us < 0 ? 1 : 0];

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
	// logAxis is an axis for latencies, from a power of ten to another one.
	const logAxis = (values) => {
		let low = Infinity, high = 0;
		for (const v of values) if (v > 0) { low = Math.min(low, v); high = Math.max(high, v); }
		if (!high) { low = 100; high = 1000; }
		low = 10 ** Math.floor(Math.log10(low) + 1e-9);
		high = 10 ** Math.ceil(Math.log10(high) - 1e-9);
		if (high <= low) high = low * 10;
		return { low, high, ...latencyAxis('latency', Math.sqrt(low * high), { type: 'log', min: low, max: high }) };
	};

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
							points.push([l.percentiles[i], ...bounded(l.percentiles[i + 1])]);
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
			const y = logAxis(lines.flatMap((l) => l.points.map((p) => p[1])));
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
		const axisOf = (heat) => logAxis(of.flatMap((run) => {
			const l = latencyOf(group, run), { from, to } = runs[run], seen = (i) => to[i] > state.from && from[i] < state.to;
			const top = heat ? l.max : l.p999, cells = heat && l.heat || [];
			return [...top, ...l.p50].map(Math.abs).filter((_, i) => seen(i % top.length)).concat(cells.filter((h, i) => h && seen(i))
				.map((h) => 10 ** (h[0] / data.heat_rows)));
		}));
		if (several && of.length > 1) {
			add('latency-charts', true, () => ({
				title: `${groupName(group)}${timeTitle(latencyOf(group, of[0]))} of ${latencyOf(group, of[0]).op}, all results`,
				x: timeAxis(), y: axisOf(false), marks: timeMarks(),
				lines: of.flatMap((run) => percentiles.slice(0, 3).map(([name, key], k) => ({
					name: runName(run) + name + (latencyOf(group, run).time === latencyOf(group, of[0]).time ? '' :
						', ' + latencyOf(group, run).time + ' time'),
					points: middles(run, latencyOf(group, run)[key], bounded), ...styleOf(run, k),
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
					about: eventNames(run),
					heat: l.heat && heatSeries(l, y, range), marks: timeMarks(run), areas: phaseAreas(run), top: 38,
					scale: range && range.map((v) => `${digits(Number(v.toPrecision(2)))}/s`),
					lines: percentiles.map(([name, key], k) => ({
						name, points: middles(run, l[key], bounded), color: t.lines[name], type: ['solid', 'solid', [5, 3], [1, 3]][k],
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
					value: [s.rate, ...bounded(s[key])],
					itemStyle: s.why ? { color: theme().ground, borderColor: styleOf(c.run, k).color, borderWidth: 2 } : undefined,
				})),
			})));
			const most = Math.max(...curves.flatMap((c) => c.steps.map((s) => s.rate)), 1);
			const slo = curves.map((c) => c.slo).find(Boolean);
			return {
				title: (data.groups.length > 1 ? group + ': ' : '') + 'Latency against rate' + (slo ? `, SLO ${slo}` : ''), top: 38,
				x: { name: 'rate (operations per second)', text: (v) => digits(v) + '/s',
					options: { type: 'value', min: 0, max: 1.1 * most, axisLabel: { formatter: digits, showMaxLabel: false } } },
				y: logAxis(lines.flatMap((l) => l.points.map((p) => p.value[1]))), lines,
				marks: (t) => markLine(t, curves.flatMap((c) => c.marks.map((m) => ({ ...m, run: c.run })))),
			};
		});
	}

	// Controls. Both forms choose the operation and the kind of time; the second one chooses the span, too.
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

	ready();
})();
