/** An issuer of JWTs that signs whatever a test wants, and answers as the test wants. */

import { exportJWK, generateKeyPair, type JWK, type JWTHeaderParameters, SignJWT } from "jose";

export const AUDIENCE = "https://plants.example";

export async function makeKey(kid: string, alg = "ES256") {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
  const publicJwk: JWK = { ...(await exportJWK(publicKey)), kid, alg, use: "sig" };
  return { alg, privateKey, publicJwk };
}

export type Issuer = Awaited<ReturnType<typeof startIssuer>>;

type Members = Readonly<Record<string, unknown>>;

export const secondsFromNow = (seconds: number): number => Math.floor(Date.now() / 1000) + seconds;

export async function startIssuer(port = 0) {
  const key = await makeKey("first");
  const asked: string[] = [];
  const server = Bun.serve({
    port,
    hostname: "127.0.0.1",
    idleTimeout: 0,
    fetch: async (request) => {
      const { pathname } = new URL(request.url);
      asked.push(pathname);
      const { discovery, keys } = documents;
      const found = await (pathname === "/keys" ? keys : discovery);
      return found instanceof Response ? (found.clone() as Response) : Response.json(found);
    },
  });
  const url = `http://127.0.0.1:${server.port}`;
  /** What its documents are; a Response, or a promise of one, replaces a document. */
  const documents: { discovery: unknown; keys: unknown } = {
    discovery: { issuer: url, jwks_uri: `${url}/keys` },
    keys: { keys: [key.publicJwk] },
  };
  return {
    url,
    documents,
    /** The paths of the requests that it got. */
    asked,
    key,
    settings: { PLANTSTORE_JWT_ISSUER: url, PLANTSTORE_JWT_AUDIENCE: AUDIENCE },
    /** A token with sound claims, except for those given; undefined leaves one out. */
    sign: (claims: Members = {}, header: Members = {}, signingKey = key): Promise<string> => {
      const { alg, privateKey, publicJwk } = signingKey;
      const payload = {
        iss: url,
        aud: AUDIENCE,
        sub: "alice",
        exp: secondsFromNow(600),
        scope: "plants:read plants:write",
        ...claims,
      };
      const head = { alg, kid: publicJwk.kid, typ: "at+jwt", ...header };
      return new SignJWT(payload).setProtectedHeader(head as JWTHeaderParameters).sign(privateKey);
    },
    [Symbol.asyncDispose]: () => server.stop(true),
  };
}
