// Draws the figures of a history from the JSON in the element "data". See type drawnTrend in history.go.
(() => {
	'use strict';
	const { add, ready, theme, timeUnit } = charts;
	const trends = JSON.parse(document.getElementById('data').textContent);

	// textOf returns how to print values of a series: with as many digits as tell them apart, seven at most, and in a unit
	// that fits all of them.
	const textOf = (s) => {
		const high = Math.max(...s.values), span = high - Math.min(...s.values);
		const digits = Math.min(7, Math.max(3, span > 0 ? 2 + Math.ceil(Math.log10(high / span)) : 3));
		const [unit, factor] = s.unit !== 'us' ? [{ 'us/op': 'µs', 'B/op': 'B', '/op': '' }[s.unit] ?? s.unit, 1] :
			timeUnit(high);
		const number = (v) => {
			const whole = Math.ceil(Math.log10(Math.abs(v / factor) + 1));
			return Number((v / factor).toPrecision(Math.max(digits, whole)))
				.toLocaleString('en-US', { maximumFractionDigits: 12 });
		};
		return { unit, number, text: (v) => (number(v) + ' ' + unit).trim() };
	};
	const colours = (t) => ({ better: t.colours[2], worse: t.colours[1] });

	trends.forEach((trend, k) => trend.series.forEach((s) => add('charts-' + k, false, () => {
		const t = theme(), last = trend.runs.length - 1, { unit, number, text } = textOf(s);
		const levelOf = (i) => s.levels.findLast((l) => l.from <= i);
		return {
			title: s.name, top: 38,
			lines: [
				{ name: 'run', points: s.values.map((v, i) => [s.runs[i], v]), color: t.colours[0], width: 1.2,
					symbol: s.values.length <= 100 ? 'circle' : undefined, size: 5 },
				{ name: 'median', points: s.values.map((_, i) => [s.runs[i], levelOf(i).median]), color: t.text, width: 2,
					step: 'middle' },
			],
			x: {
				name: 'runs, oldest first', text: (i) => trend.runs[i] || '',
				options: (narrow) => {
					const step = Math.max(1, Math.ceil(trend.runs.length / (narrow ? 3 : 5))), customValues = [];
					for (let i = 0; i <= last; i += step) customValues.push(i);
					return { type: 'value', min: -0.5, max: last + 0.5, axisTick: { customValues },
						axisLabel: { customValues, formatter: (i) => trend.days[i] || '' } };
				},
			},
			y: { name: unit, text, options: { type: 'value', scale: true, axisLabel: { formatter: number } } },
			marks: (t) => ({
				symbol: 'none', silent: true, animation: false,
				data: s.levels.filter((l) => l.change).map((l) => ({
					xAxis: (s.runs[l.from] + s.runs[l.from - 1]) / 2,
					lineStyle: { color: colours(t)[l.verdict] || t.soft, type: [4, 3], width: 1.6 },
					label: { show: true, position: 'end', distance: 2, color: t.text, fontSize: 10, textBorderColor: t.ground,
						textBorderWidth: 3, formatter: l.change },
				})),
			}),
		};
	})));
	ready();
})();
