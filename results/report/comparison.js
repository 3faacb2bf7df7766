// Draws the ratios of a comparison from the JSON in the element "data". See type drawnComparison in comparison.go.
(() => {
	'use strict';
	const { add, digits, escape, ready } = charts;
	const { rows } = JSON.parse(document.getElementById('data').textContent);

	// Each verdict has a shape and a colour, so that either is enough to tell it. A hollow shape is no verdict for or
	// against B.
	const verdicts = {
		better: { symbol: 'triangle', mark: '▲', color: (t) => t.colours[2] },
		worse: { symbol: 'triangle', rotate: 180, mark: '▼', color: (t) => t.colours[1] },
		differs: { symbol: 'diamond', mark: '◆', color: (t) => t.colours[0] },
		'~': { symbol: 'emptyCircle', mark: '○', color: (t) => t.soft },
		contaminated: { symbol: 'emptyRect', mark: '□', color: (t) => t.colours[3] },
		'cannot tell': { symbol: 'emptyDiamond', mark: '◇', color: (t) => t.soft },
		'too few': { symbol: 'emptyDiamond', mark: '◇', color: (t) => t.soft },
	};
	const meaning = { '~': '~ (may be noise)' };

	// The axis has the logarithms of ratios, between bounds that no figure here passes unless a side did nothing.
	const log = (ratio) => Math.log(Math.min(Math.max(ratio, 1e-4), 1e4));

	// The axis shows three quarters of the figures in full, and others as far as that leaves room for these: a figure that
	// lies further out stands at the edge, with its ratio beside it.
	const reach = rows.map((r) => Math.max(...[r.center, ...(r.interval || [])].map((v) => Math.abs(log(v)))));
	const most = 4 * Math.max(0.0025, [...reach].sort((a, b) => a - b)[Math.floor(0.75 * (rows.length - 1))]);
	const values = rows.flatMap((r) => [1, r.center, ...(r.interval || [])]).map(log).filter((v) => Math.abs(v) <= most);
	const spread = Math.max(0.01, Math.max(...values) - Math.min(...values));
	const low = Math.min(...values) - spread / 12, high = Math.max(...values) + spread / 12;
	const place = (ratio) => Math.min(Math.max(log(ratio), low), high);
	const outside = (r) => log(r.center) < low || log(r.center) > high;

	// The ticks are ratios that are easy to read, all of one kind: changes in percent, or times where the axis goes so far
	// that these read better.
	const times = high >= Math.log(2) || low <= Math.log(0.1);
	const tickText = (ratio) => times ? 'x' + digits(ratio) : ratio === 1 ? '0 %' :
		(ratio > 1 ? '+' : '−') + digits(Math.abs(100 * (ratio - 1))) + ' %';
	const ticks = (most) => {
		const within = (list) => list.map(log).filter((v) => v >= low && v <= high);
		if (high - low < 1.6) {
			for (const percent of [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]) {
				const list = [];
				for (let k = Math.ceil(-99 / percent); k * percent <= 400; k++) list.push(1 + k * percent / 100);
				if (within(list).length <= most) return within(list);
			}
		}
		for (const step of [2, 10, 100, 1000]) {
			const list = [];
			for (let k = -14; k <= 14; k++) list.push(step ** k);
			if (within(list).length <= most) return within(list);
		}
		return [0];
	};

	const text = (r) => `${r.name}: ${r.change}` + (r.span ? ` (${r.span})` : '') + `, ${r.verdict}`;

	if (rows.length) add('ratios', true, () => ({
		title: 'B / A', height: 70 + 26 * rows.length, top: 10, left: (narrow) => narrow ? 118 : 170,
		lines: [],
		x: {
			name: 'B against A', options: (narrow) => {
				const customValues = ticks(narrow ? 5 : 11);
				return { type: 'value', min: low, max: high, split: true, axisTick: { customValues },
					axisLabel: { customValues, formatter: (v) => tickText(v === 0 ? 1 : Math.exp(v)) } };
			},
		},
		y: {
			name: 'figures', options: {
				type: 'value', inverse: true, min: -0.6, max: rows.length - 0.4, name: '', splitLine: { show: false },
				axisTick: { show: false }, axisLabel: { customValues: rows.map((_, i) => i), hideOverlap: false, width: 112,
					overflow: 'truncate', formatter: (v) => rows[v] ? rows[v].name : '' },
			},
		},
		signs: Object.entries(verdicts).filter(([v]) => rows.some((r) => r.verdict === v))
			.map(([v, s]) => ({ name: meaning[v] || v, mark: s.mark, color: s.color(charts.theme()) })),
		series: (t) => [
			{
				type: 'scatter', symbolSize: 4, clip: true, z: 2, silent: true, itemStyle: { color: t.soft, opacity: 0.45 },
				data: rows.flatMap((r, i) => (r.rounds || []).filter((v) => v > 0).map((v) => [log(v), i + 0.3])),
			},
			{
				type: 'custom', z: 3, silent: true, clip: true, encode: { x: [0, 1], y: 2 },
				data: rows.map((r, i) => r.interval && !outside(r) ? [place(r.interval[0]), place(r.interval[1]), i] : [0, 0, -9]),
				renderItem: (params, api) => {
					const row = rows[api.value(2)];
					if (!row) return null;
					const [from, y] = api.coord([api.value(0), api.value(2)]), [to] = api.coord([api.value(1), api.value(2)]);
					const style = { stroke: verdicts[row.verdict].color(t), lineWidth: 2, fill: null };
					return { type: 'group', children: [[from, y, to, y], [from, y - 4, from, y + 4], [to, y - 4, to, y + 4]]
						.map(([x1, y1, x2, y2]) => ({ type: 'line', shape: { x1, y1, x2, y2 }, style })) };
				},
			},
			{
				type: 'scatter', z: 4, clip: false,
				data: rows.map((r, i) => {
					const v = verdicts[r.verdict];
					return { value: [place(r.center), i], symbol: v.symbol, symbolRotate: v.rotate || 0, symbolSize: 12,
						itemStyle: { color: v.color(t), borderWidth: 2, opacity: 1 },
						label: { show: outside(r), position: r.center > 1 ? 'left' : 'right', color: t.text, fontSize: 11,
							formatter: r.center > 1 ? r.change + ' →' : '← ' + r.change } };
				}),
				markLine: { symbol: 'none', silent: true, animation: false, label: { show: false },
					data: [{ xAxis: 0, lineStyle: { color: t.text, type: 'solid', width: 1.4 } }] },
			},
		],
		tip: (item) => {
			const r = rows[item.dataIndex];
			if (!r) return '';
			return `<b>${escape(text(r))}</b><br>A ${escape(r.a)}<br>B ${escape(r.b)}` +
				(r.changes ? '<br>rounds: ' + escape(r.changes) : '');
		},
		stops: rows.map((r, i) => ({ text: `${text(r)}, A ${r.a}, B ${r.b}`, seriesIndex: 2, dataIndex: i })),
	}));
	ready();
})();
