// Draws the curves of knobs and the front from the JSON in the element "data". See type drawnTuning in tuning.go.
(() => {
	'use strict';
	const { add, digits, escape, latencyAxis, ready, theme } = charts;
	const { objective, knobs, front } = JSON.parse(document.getElementById('data').textContent);

	const change = (ratio) => ratio === null ? null : 100 * (ratio - 1);

	knobs.forEach((k) => add('knobs', false, () => {
		const t = theme(), values = k.ratios.map(change);
		const seen = [...values, ...k.low.map(change), ...k.high.map(change)].filter((v) => v !== null);
		// An interval that is far wider than the curve leaves the picture, and not the curve.
		const reach = 3 * Math.max(2, ...values.filter((v) => v !== null).map(Math.abs));
		const low = Math.max(Math.min(0, ...seen), -reach), high = Math.min(Math.max(0, ...seen), reach);
		const room = Math.max(0.5, (high - low) / 10);
		return {
			title: k.name, lines: [],
			x: { name: 'value', options: (narrow) => ({
				type: 'value', min: -0.5, max: k.values.length - 0.5,
				axisTick: { customValues: k.values.map((_, i) => i) },
				axisLabel: { customValues: k.values.map((_, i) => i), fontSize: narrow ? 9 : 11,
					formatter: (i) => k.values[i] || '' },
			}) },
			y: { name: objective, options: { type: 'value', min: low - room, max: high + room,
				axisLabel: { formatter: (v) => digits(Math.round(v * 10) / 10) + ' %', showMinLabel: false,
					showMaxLabel: false } } },
			series: () => [
				{
					type: 'line', silent: true, symbol: 'none', z: 2, data: values.map((v, i) => [i, v]),
					lineStyle: { color: t.colours[0], width: k.ordered ? 1.6 : 0 },
					markLine: { symbol: 'none', silent: true, animation: false, label: { show: false },
						data: [{ yAxis: 0, lineStyle: { color: t.text, type: 'solid', width: 1 } }] },
				},
				{
					type: 'custom', z: 3, silent: true, clip: true, encode: { x: 0, y: [1, 2] },
					data: values.map((_, i) => k.low[i] === null ? [-9, 0, 0] :
						[i, change(k.low[i]), change(k.high[i])]),
					renderItem: (params, api) => {
						const [x, from] = api.coord([api.value(0), api.value(1)]);
						const [, to] = api.coord([api.value(0), api.value(2)]);
						const style = { stroke: t.colours[0], lineWidth: 1.6, fill: null };
						return { type: 'group', children: [[x, from, x, to], [x - 4, from, x + 4, from], [x - 4, to, x + 4, to]]
							.map(([x1, y1, x2, y2]) => ({ type: 'line', shape: { x1, y1, x2, y2 }, style })) };
					},
				},
				{
					type: 'scatter', z: 4, data: values.map((v, i) => ({ value: [i, v], symbolSize: 9,
						symbol: i === k.default ? 'emptyCircle' : 'circle',
						itemStyle: { color: t.colours[0], borderWidth: 2, opacity: 1 } })),
				},
			],
			tip: (item) => `<b>${escape(k.name)} ${escape(k.values[item.dataIndex])}</b><br>` +
				escape(k.texts[item.dataIndex]).replaceAll(', ', '<br>'),
			stops: values.map((v, i) => ({ text: `${k.name} ${k.texts[i]}`, seriesIndex: 2, dataIndex: i })),
		};
	}));

	if (front.length) add('front', true, () => {
		const t = theme();
		return {
			title: 'p99 against throughput', height: 300, lines: [],
			x: { name: 'throughput, ops/s', options: { type: 'value', scale: true, axisLabel: { formatter: digits } } },
			y: latencyAxis('p99', Math.max(...front.map((f) => f.p99)), { type: 'value', scale: true }),
			signs: [
				{ name: 'chosen', mark: '▲', color: t.colours[2] }, { name: 'default', mark: '○', color: t.text },
				{ name: 'another', mark: '●', color: t.colours[0] },
			].filter((s) => s.name === 'another' || front.some((f) => f[s.name])),
			series: () => [{
				type: 'scatter', z: 3, data: front.map((f) => ({ value: [f.throughput, f.p99], symbolSize: 11,
					symbol: f.chosen ? 'triangle' : f.default ? 'emptyCircle' : 'circle',
					itemStyle: { color: f.chosen ? t.colours[2] : f.default ? t.text : t.colours[0], borderWidth: 2,
						opacity: 1 } })),
			}],
			tip: (item) => escape(front[item.dataIndex].text).replaceAll(', ', '<br>'),
			stops: front.map((f, i) => ({ text: f.text, seriesIndex: 0, dataIndex: i })),
		};
	});
	ready();
})();
