// Dark or light: what the system prefers, unless the reader has chosen. It runs before the page is drawn.
"use strict";
(() => {
  const KEY = "quiver-theme";
  const root = document.documentElement;
  const chosen = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const apply = (theme) => { if (theme === "dark" || theme === "light") root.dataset.theme = theme; };
  apply(chosen());
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", () => {
      const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      apply(isDark ? "light" : "dark");
      try { localStorage.setItem(KEY, root.dataset.theme); } catch { /* it lasts as long as the page */ }
    });
  });
})();
