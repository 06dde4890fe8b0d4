/** nginx with a fixed answer: what this core can do over HTTP when nothing is done at all. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { findFreePort } from "../../test/support/postgres-files.ts";
import { makePath } from "../stores.ts";
import { name, type Server, startServer, tag } from "./server.ts";

export async function serveNginx(): Promise<Server> {
  const nginx = Bun.which("nginx") ?? Bun.which("nginx", { PATH: "/usr/sbin" });
  if (nginx === null) throw new Error("nginx is not installed");
  const folder = makePath("nginx");
  mkdirSync(folder);
  const port = findFreePort();
  const path = join(folder, "nginx.conf");
  writeFileSync(path, configure(folder, port));
  return startServer({
    command: [nginx, "-p", folder, "-c", path, "-e", join(folder, "error.log")],
    port,
    durability: "stores nothing",
  });
}

const configure = (folder: string, port: number): string => `
daemon off;
worker_processes 1;
pid ${folder}/nginx.pid;
events { worker_connections 1024; }
http {
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  server {
    listen 127.0.0.1:${port};
    location / {
      default_type application/json;
      return 200 '${JSON.stringify({ name, tag })}';
    }
  }
}
`;
