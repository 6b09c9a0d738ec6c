// The theme: the system's, or the reader's stored choice. Runs before the first paint, so it is not a module.

(() => {
  const KEY = "nni_manager.theme";
  const dark = document.getElementById("dark-theme");
  const system = matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage is not available: use the system's theme
    }
  }

  function isDark() {
    return (chosen() ?? (system.matches ? "dark" : "light")) === "dark";
  }

  function apply() {
    dark.media = isDark() ? "all" : "not all";
    document.documentElement.dataset.theme = isDark() ? "dark" : "light";
    document.getElementById("theme")?.setAttribute("aria-pressed", String(isDark()));
    document.dispatchEvent(new Event("themechange"));
  }

  function choose(theme) {
    try {
      if (theme === (system.matches ? "dark" : "light")) localStorage.removeItem(KEY); // follows the system again
      else localStorage.setItem(KEY, theme);
    } catch {
      // not stored
    }
    dark.media = theme === "dark" ? "all" : "not all";
    document.documentElement.dataset.theme = theme;
    document.getElementById("theme")?.setAttribute("aria-pressed", String(theme === "dark"));
    document.dispatchEvent(new Event("themechange"));
  }

  apply();
  system.addEventListener("change", apply);
  addEventListener("storage", (event) => event.key === KEY && apply());
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    if (!button) return;
    button.hidden = false;
    button.setAttribute("aria-pressed", String(isDark()));
    button.addEventListener("click", () => choose(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  });
})();
