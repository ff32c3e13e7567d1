// What the tests start and stop.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { Newsletter, serveWebhooks } from "./newsletter.mjs";

const PROGRAM = process.env.AUDIENCE_MOCK_PROGRAM ?? "audience-mock";
const SEED = fileURLToPath(new URL("../seed.json", import.meta.url));
const FULL_KEY = JSON.parse(readFileSync(SEED, "utf8")).keys.full;
const SECRET = "a-secret-of-the-test";

/** A running mock, and its control plane. */
export class Mock {
  /** Starts a mock with the seed on a free port. */
  static async start() {
    const options = ["--port", "0", "--signing-clock", "wall", "--seed", SEED];
    const child = spawn(PROGRAM, options, { stdio: ["ignore", "pipe", "inherit"] });
    const lines = createInterface({ input: child.stdout });
    const [firstLine] = await Promise.race([
      once(lines, "line"),
      once(child, "exit").then(() => { throw new Error(`${PROGRAM} did not start`); }),
    ]);
    return new Mock(child, firstLine.replace("listening on ", ""));
  }

  constructor(child, url) {
    Object.assign(this, { child, url });
  }

  async stop() {
    const exited = once(this.child, "exit");
    this.child.kill();
    await exited;
  }

  async control(method, path, body) {
    const response = await fetch(`${this.url}/_mock/${path}`, {
      method,
      headers: { "content-type": "application/json" },
      body: body && JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text && JSON.parse(text);
  }

  contact(address) {
    return this.control("GET", `contacts/${address}`);
  }

  /** Resolves when everything that is due has been delivered once. */
  waitForDeliveries() {
    return this.control("POST", "clock", { advance: 0 });
  }
}

/** Resets the mock, and starts the application with its webhook handler as an endpoint. */
export async function startNewsletter(mock) {
  await mock.control("POST", "reset");
  const newsletter = new Newsletter(mock.url, FULL_KEY, async () => {});
  const server = await serveWebhooks(newsletter, SECRET);
  const { port } = server.address();
  const url = `http://127.0.0.1:${port}/hook`;
  await mock.control("PUT", "endpoints/newsletter", { url, secret: SECRET });
  return { newsletter, port, stop: () => new Promise((done) => server.close(done)) };
}
