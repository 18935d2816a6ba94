// Questions to quiver-web. A token is kept as long as the tab.

const KEY = "quiver-token";
let token = read();
let asking = null;

function read() {
  try { return sessionStorage.getItem(KEY) ?? ""; } catch { return ""; }
}

/** Asks for the token, once for all questions that wait. */
function login() {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("login");
    const input = document.getElementById("token");
    dialog.addEventListener("close", () => {
      token = input.value.trim();
      input.value = "";
      try { sessionStorage.setItem(KEY, token); } catch { /* it is asked for again */ }
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

async function call(path, options) {
  for (;;) {
    const headers = { ...options.headers };
    if (token) headers.Authorization = `Bearer ${token}`;
    let response;
    try {
      response = await fetch(path, { ...options, headers, credentials: "omit", cache: "no-store" });
    } catch {
      throw new Error("quiver-web does not answer");
    }
    if (response.status === 401) {
      await login();
      continue;
    }
    const isJson = (response.headers.get("Content-Type") ?? "").startsWith("application/json");
    const body = isJson ? await response.json() : await response.text();
    if (!response.ok) throw new Error(isJson ? body.error : body.trim());
    return body;
  }
}

/** What a question answers. */
export function get(name, values = {}) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value !== undefined));
  const text = query.toString();
  return call(`/api/${name}${text ? `?${text}` : ""}`, { method: "GET" });
}

/** Has something done. */
export const post = (name, body = {}) =>
  call(`/api/${name}`, { method: "POST", headers: { "X-Quiver": "1", "Content-Type": "application/json" }, body: JSON.stringify(body) });
