// Runs before the first paint: a chosen theme must not flash.
(() => {
  let chosen = null
  try { chosen = localStorage.getItem("elasticjob-theme") } catch { /* storage is off */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen
})()
