// Draw each chart from its table of numbers. Without scripts, and for screen readers, the table is there.

const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [5, 2], [1, 4]];
const DAY = 86_400;
const TIMES = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 36000, DAY, 7 * DAY, 30 * DAY];

/** A colour as it is now: tokens have a light and a dark value, and a canvas knows neither. */
function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** Oldest first: the days, then a column of numbers per line, and how the table writes them. */
function read(chart) {
  const rows = [...chart.querySelectorAll("tbody tr")].reverse();
  const heads = [...chart.querySelectorAll("thead th[data-line]")];
  const names = heads.map((cell) => cell.textContent);
  const cells = rows.map((row) => [...row.querySelectorAll("td")]);
  return {
    days: rows.map((row) => Date.parse(row.querySelector("time").dateTime) / 1000),
    labels: rows.map((row) => row.querySelector("time").textContent),
    names,
    lines: heads.map((cell) => Number(cell.dataset.line)),
    values: names.map((_, place) => cells.map((row) => ("value" in row[place].dataset ? Number(row[place].dataset.value) : null))),
    words: names.map((_, place) => cells.map((row) => row[place].textContent)),
  };
}

function inShort(number) {
  return Intl.NumberFormat(document.documentElement.lang, { notation: "compact", maximumFractionDigits: 1 }).format(number);
}

/** In the reader's language, in which the chart brings the words. */
function asTime(seconds, words) {
  if (seconds >= 7200) return words.hours.replace("{number}", inShort(seconds / 3600));
  const [form, number] = seconds >= 120 ? [words.minutes, seconds / 60] : [words.seconds, seconds];
  return form.replace("{number}", inShort(number));
}

// Counts have no fractions.
const WHOLE = Array.from({ length: 39 }, (_, place) => [1, 2, 5][place % 3] * 10 ** Math.floor(place / 3));
const STEPS = { seconds: TIMES, count: WHOLE, tokens: WHOLE };
const WRITTEN = { seconds: asTime, dollars: (number) => `$${inShort(number)}` };

/** What stands under the pointer, in the words of the table. */
function tip(data) {
  let box;
  return {
    hooks: {
      init: (plot) => {
        box = document.createElement("div");
        box.className = "chart-tip";
        box.hidden = true;
        plot.over.append(box);
      },
      setCursor: (plot) => {
        const place = plot.cursor.idx;
        box.hidden = place == null;
        if (place == null) return;
        box.textContent = `${data.labels[place]} · ${data.names.map((name, line) => `${name} ${data.words[line][place]}`).join(" · ")}`;
        const left = Math.min(plot.cursor.left + 12, plot.over.clientWidth - box.offsetWidth);
        box.style.left = `${Math.max(0, left)}px`;
        box.style.top = "0";
      },
    },
  };
}

function draw(chart) {
  const place = chart.querySelector(".plot");
  const data = read(chart);
  const [ink, line] = [colour("--ink-3"), colour("--line")];
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const axis = { stroke: ink, font, grid: { stroke: line, width: 1 }, ticks: { show: false } };
  const options = {
    width: place.clientWidth,
    height: place.clientHeight,
    padding: [8, 22, 0, 0],
    tzDate: (time) => uPlot.tzDate(new Date(time * 1000), "UTC"),
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    scales: { y: { range: (_plot, _low, high) => [0, Math.max(high, 1e-6) * 1.08] } },
    axes: [
      { ...axis, size: 30, grid: { show: false }, values: (_plot, ticks) => ticks.map(shortDay), incrs: [DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 180 * DAY, 365 * DAY], space: 70 },
      { ...axis, size: 56, incrs: STEPS[chart.dataset.unit], values: (_plot, ticks) => ticks.map((tick) => (WRITTEN[chart.dataset.unit] || inShort)(tick, chart.dataset)), space: 36 },
    ],
    series: [
      {},
      ...data.names.map((label, number) => ({
        label,
        stroke: colour(`--line-${data.lines[number]}`),
        width: 2,
        dash: DASHES[data.lines[number] - 1],
        spanGaps: true,
        points: { show: data.values[number].filter((value) => value !== null).length < 2 }, // a single point has no line
      })),
    ],
    plugins: [tip(data)],
  };
  place.querySelector(".uplot")?.remove();
  new uPlot(options, [data.days, ...data.values], place);
  place.classList.add("drawn");
}

function shortDay(time) {
  return new Date(time * 1000).toLocaleDateString(document.documentElement.lang, { day: "numeric", month: "short", timeZone: "UTC" });
}

const drawAll = () => document.querySelectorAll(".chart").forEach(draw);
let waiting = 0;

addEventListener("resize", () => {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(drawAll);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
drawAll();
