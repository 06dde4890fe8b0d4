/** npm run dev: serves the console from its sources with hot reload, in front of a running service. */

import index from "../console/index.html";
import { bundle, onDemand } from "./build.ts";

const service = process.env["PLANTSTORE_URL"] ?? "http://127.0.0.1:8080";
const port = Number(process.env["PORT"] ?? 5173);

const server = Bun.serve({
  port,
  hostname: "127.0.0.1",
  development: { hmr: true },
  routes: {
    "/": index,
    "/console/:script": async ({ params: { script } }) =>
      new Response(await bundle(onDemand[`console/${script}`] ?? ""), {
        headers: { "content-type": "text/javascript", "cache-control": "no-store" },
      }),
  },
  // Everything else is proxied to the service.
  fetch: (request) => {
    const { pathname, search } = new URL(request.url);
    const headers = new Headers(request.headers);
    headers.delete("host");
    return fetch(new URL(pathname + search, service), {
      // A body without its coding would keep the header.
      decompress: false,
      method: request.method,
      headers,
      body: request.body,
      redirect: "manual",
    });
  },
});

process.stdout.write(
  `The console is at ${server.url.href}, in front of ${service} (PLANTSTORE_URL).\n`,
);
