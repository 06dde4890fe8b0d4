/** An issuer of JWTs that signs whatever a test wants, and answers as the test wants. */

import { exportJWK, generateKeyPair, type JWK, type JWTHeaderParameters, SignJWT } from "jose";

export const AUDIENCE = "https://plants.example";

export interface SigningKey {
  readonly alg: string;
  readonly privateKey: CryptoKey;
  readonly publicJwk: JWK;
}

export async function makeKey(kid: string, alg = "ES256"): Promise<SigningKey> {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
  return { alg, privateKey, publicJwk: { ...(await exportJWK(publicKey)), kid, alg, use: "sig" } };
}

export interface Issuer extends AsyncDisposable {
  readonly url: string;
  /** What its documents are; a Response, or a promise of one, replaces a document. */
  readonly documents: { discovery: unknown; keys: unknown };
  /** The paths of the requests that it got. */
  readonly asked: string[];
  readonly key: SigningKey;
  /** For a service of a test. */
  readonly settings: Readonly<Record<string, string>>;
  /** A token with sound claims, except for those given; undefined leaves one out. */
  readonly sign: (
    claims?: Readonly<Record<string, unknown>>,
    header?: Readonly<Record<string, unknown>>,
    key?: SigningKey,
  ) => Promise<string>;
}

export const secondsFromNow = (seconds: number): number => Math.floor(Date.now() / 1000) + seconds;

export async function startIssuer(port = 0): Promise<Issuer> {
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
  const documents: Issuer["documents"] = {
    discovery: { issuer: url, jwks_uri: `${url}/keys` },
    keys: { keys: [key.publicJwk] },
  };
  return {
    url,
    documents,
    asked,
    key,
    settings: { PLANTSTORE_JWT_ISSUER: url, PLANTSTORE_JWT_AUDIENCE: AUDIENCE },
    sign: (claims, header, signingKey = key) => {
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
