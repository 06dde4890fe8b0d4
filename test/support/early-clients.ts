/** Clients as people use them, which send all of a body before or while they read the answer. */

export interface EarlyCase {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly bytes: number;
  readonly isChunked: boolean;
  /** Sent in pieces with this pause between them. Node's fetch then uses chunks. */
  readonly pauseMs?: number;
  /** HTTP/1.0, without a Connection header. Only Python's client can send it. */
  readonly isOld?: boolean;
}

const PIECE_BYTES = 65_536;

/** Sends all cases at once, and prints what became of each: status and code, or the name of a failure. */
export type Program = (url: string, cases: readonly EarlyCase[]) => readonly string[];

const node: Program = (url, cases) => [
  "node",
  "-e",
  `const cases = ${JSON.stringify(cases)};
  async function send({ path, headers, bytes, isChunked, pauseMs = 0 }) {
    const whole = Buffer.alloc(bytes, 120);
    const body = isChunked || pauseMs > 0 ? new ReadableStream({
      async start(controller) {
        for (let at = 0; at < bytes; at += ${PIECE_BYTES}) {
          controller.enqueue(whole.subarray(at, at + ${PIECE_BYTES}));
          await new Promise((resolve) => setTimeout(resolve, pauseMs));
        }
        controller.close();
      },
    }) : whole;
    const response = await fetch(${JSON.stringify(url)} + path, { method: "POST", headers, body, duplex: "half" });
    const { error } = await response.json();
    return response.status + " " + error;
  }
  const sent = cases.map((one) => send(one).catch((error) => String(error.cause?.code ?? error)));
  Promise.all(sent).then((results) => console.log(JSON.stringify(results)));`,
];

const python: Program = (url, cases) => [
  "python3",
  "-c",
  `import concurrent.futures, http.client, json, time, urllib.parse
url = urllib.parse.urlparse(${JSON.stringify(url)})
def send(one):
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=240)
    if one.get("isOld"):
        connection._http_vsn, connection._http_vsn_str = 10, "HTTP/1.0"
    whole = b"x" * one["bytes"]
    def pieces():
        for at in range(0, len(whole), ${PIECE_BYTES}):
            yield whole[at:at + ${PIECE_BYTES}]
            time.sleep(one.get("pauseMs", 0) / 1000)
    headers = dict(one["headers"])
    if one["isChunked"]:
        headers["Transfer-Encoding"] = "chunked"
    else:
        headers["Content-Length"] = str(len(whole))
    connection.request("POST", one["path"], pieces(), headers, encode_chunked=one["isChunked"])
    answer = connection.getresponse()
    return str(answer.status) + " " + str(json.loads(answer.read())["error"])
def attempt(one):
    try:
        return send(one)
    except Exception as error:
        return type(error).__name__
cases = json.loads(${JSON.stringify(JSON.stringify(cases))})
with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
    print(json.dumps(list(pool.map(attempt, cases))))`,
];

/** By the names of their programs. */
export const clients: Readonly<Record<string, Program>> = { node, python3: python };

/** One result for each case. */
export async function runClient(
  program: Program,
  url: string,
  cases: readonly EarlyCase[],
): Promise<string[]> {
  const child = Bun.spawn([...program(url, cases)], { stdout: "pipe", stderr: "inherit" });
  return JSON.parse(await new Response(child.stdout).text()) as string[];
}
