/** A port that several threads of this process will share, and nobody else. */

import type { Config } from "../config.ts";

export interface HeldPort extends Disposable {
  readonly port: number;
}

/**
 * Whoever may share a port may share it with anybody: so the port is first taken alone, which fails where
 * anyone has it, and a name is held for as long as it is shared, which a second service could not take.
 */
export function holdPort({ host, port: wanted }: Pick<Config, "host" | "port">): HeldPort {
  const alone = Bun.serve({
    hostname: host,
    port: wanted,
    reusePort: false,
    development: false,
    // Nobody gets here: it is closed again in the same turn.
    fetch: () => new Response(null, { status: 503 }),
  });
  try {
    const port = alone.port ?? wanted;
    // In the abstract namespace: like a port it is the machine's, and ends with the process.
    const name = `\0plantstore/${host}:${port}`;
    const held = Bun.listen({ unix: name, socket: { data: () => undefined } });
    return { port, [Symbol.dispose]: () => held.stop(true) };
  } finally {
    void alone.stop(true);
  }
}
