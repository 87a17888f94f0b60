(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
  system.addEventListener("change", name);
  name();

  for (const body of document.querySelectorAll("tbody.folded")) {
    const row = document.createElement("tbody").appendChild(document.createElement("tr"));
    const cell = row.appendChild(document.createElement("td"));
    const unfold = cell.appendChild(document.createElement("button"));
    cell.colSpan = 4;
    cell.style.padding = "0";
    unfold.type = "button";
    unfold.className = "unfold";
    unfold.textContent = `⋯ ${body.dataset.lines} unchanged lines`;
    unfold.addEventListener("click", () => { body.hidden = false; row.parentNode.remove(); });
    body.before(row.parentNode);
    body.hidden = true;
  }

  // a link into a folded part opens it
  const open = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target) for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
  };
  addEventListener("hashchange", open);
  open();
})();
