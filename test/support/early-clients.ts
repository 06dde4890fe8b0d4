/** Clients as people use them, which send all of a body before or while they read the answer. */

export interface EarlyCase {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly bytes: number;
  readonly isChunked: boolean;
}

/** Sends all cases at once, that often, and prints what became of each: status and code, or the name of a failure. */
type Program = (url: string, cases: readonly EarlyCase[], tries: number) => readonly string[];

const node: Program = (url, cases, tries) => [
  "node",
  "-e",
  `const cases = ${JSON.stringify(cases)};
  async function send({ path, headers, bytes, isChunked }) {
    const whole = Buffer.alloc(bytes, 120);
    const body = isChunked ? new ReadableStream({
      async start(controller) {
        for (let at = 0; at < bytes; at += 65536) {
          controller.enqueue(whole.subarray(at, at + 65536));
          await new Promise(setImmediate);
        }
        controller.close();
      },
    }) : whole;
    const response = await fetch(${JSON.stringify(url)} + path, { method: "POST", headers, body, duplex: "half" });
    const { error } = await response.json();
    return response.status + " " + error;
  }
  (async () => {
    const results = [];
    for (let count = 0; count < ${tries}; count++)
      results.push(await Promise.all(cases.map((one) => send(one).catch((error) => String(error.cause?.code ?? error)))));
    console.log(JSON.stringify(results));
  })();`,
];

const python: Program = (url, cases, tries) => [
  "python3",
  "-c",
  `import concurrent.futures, http.client, json, urllib.parse
url = urllib.parse.urlparse(${JSON.stringify(url)})
def send(one):
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
    whole = b"x" * one["bytes"]
    pieces = (whole[at:at + 65536] for at in range(0, len(whole), 65536))
    headers = dict(one["headers"])
    if one["isChunked"]:
        headers["Transfer-Encoding"] = "chunked"
    connection.request("POST", one["path"], pieces if one["isChunked"] else whole, headers, encode_chunked=one["isChunked"])
    answer = connection.getresponse()
    return str(answer.status) + " " + str(json.loads(answer.read())["error"])
def attempt(one):
    try:
        return send(one)
    except Exception as error:
        return type(error).__name__
cases = json.loads(${JSON.stringify(JSON.stringify(cases))})
with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
    print(json.dumps([list(pool.map(attempt, cases)) for count in range(${tries})]))`,
];

export const clients: Readonly<Record<string, Program>> = { node, python };

/** One array for each try, with one result for each case. */
export async function runClient(
  program: Program,
  url: string,
  cases: readonly EarlyCase[],
  tries: number,
): Promise<readonly string[][]> {
  const child = Bun.spawn([...program(url, cases, tries)], { stdout: "pipe", stderr: "inherit" });
  return JSON.parse(await new Response(child.stdout).text()) as string[][];
}
