// Reads the series beside the plot and shows their values at the pointer. The page is complete without it.
(() => {
  const figure = document.querySelector("figure"), svg = figure.querySelector("svg");
  const cursor = document.getElementById("cursor"), readout = document.getElementById("readout");
  const series = JSON.parse(document.getElementById("series").textContent);
  const { seconds, left, right } = Object.fromEntries(Object.entries(svg.dataset).map(([k, v]) => [k, Number(v)]));
  const at = (points, t) => {
    let low = 0, high = points.length - 1;
    while (low < high) { const mid = (low + high + 1) >> 1; points[mid][0] <= t ? (low = mid) : (high = mid - 1); }
    return points.length && points[low][0] <= t ? points[low][1] : null;
  };
  const show = (value) => (value === null ? "–" : Number(value.toPrecision(3)).toString());
  const hide = () => { cursor.style.display = readout.style.display = "none"; };
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), unit = box.width / svg.viewBox.baseVal.width;
    const x = (event.clientX - box.left) / unit;
    if (x < left || x > right) return hide();
    const t = ((x - left) / (right - left)) * seconds;
    const offset = event.clientX - figure.getBoundingClientRect().left + figure.scrollLeft;
    readout.textContent = [`${t.toFixed(1)} s`, ...series.map((s) => `${s.name}  ${show(at(s.points, t))}`)].join("\n");
    cursor.style.display = readout.style.display = "block";
    cursor.style.left = `${offset}px`;
    readout.style.left = `${offset + (x > (left + right) / 2 ? -readout.offsetWidth - 12 : 12)}px`;
  });
})();
