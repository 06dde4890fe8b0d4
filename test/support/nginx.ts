/** nginx in front of a service, as Debian installs it. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeTemporaryFolder } from "./folder.ts";
import { until } from "./until.ts";

/** Null if nginx is not installed. */
export const nginxPath = Bun.which("nginx") ?? Bun.which("nginx", { PATH: "/usr/sbin" });

/** Listens on a port of its own and passes everything to the service. `settings` are lines for the location. */
export async function startNginx(
  serviceUrl: string,
  settings: readonly string[] = [],
): Promise<AsyncDisposable & { readonly url: string }> {
  if (nginxPath === null) throw new Error("nginx is not installed");
  const folder = makeTemporaryFolder();
  const port = findFreePort();
  mkdirSync(join(folder.path, "logs"));
  const path = join(folder.path, "nginx.conf");
  writeFileSync(path, configure(folder.path, port, serviceUrl, settings));
  const child = Bun.spawn([nginxPath, "-p", folder.path, "-c", path, "-e", "error.log"], {
    stdout: "ignore",
    stderr: "inherit",
  });
  const url = `http://127.0.0.1:${port}`;
  await until("nginx answers", () => {
    if (child.exitCode !== null) throw new Error(`nginx ended with ${child.exitCode}`);
    return answers(url);
  });
  return {
    url,
    [Symbol.asyncDispose]: async () => {
      child.kill();
      await child.exited;
      folder[Symbol.dispose]();
    },
  };
}

export function findFreePort(): number {
  using server = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response() });
  return server.port ?? 0;
}

async function answers(url: string): Promise<boolean> {
  try {
    await fetch(`${url}/livez`);
    return true;
  } catch {
    return false;
  }
}

const configure = (
  folder: string,
  port: number,
  serviceUrl: string,
  settings: readonly string[],
): string => `
daemon off;
master_process off;
pid ${folder}/nginx.pid;
events { worker_connections 256; }
http {
  access_log off;
  client_max_body_size 0;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass ${serviceUrl};
      ${settings.join("\n      ")}
    }
  }
}
`;
