// A newsletter: people sign up and confirm it, and whoever cannot be reached gets no further mail.

import { createHmac, randomUUID, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const TRANSIENT = [408, 425, 429, 500, 502, 503, 504];

/** The service refused a request. `status` is the HTTP status. */
export class Refused extends Error {
  constructor(status, message) {
    super(`${status}: ${message}`);
    this.status = status;
  }
}

/** A response or an event that is not what the service sends: a gateway may have sent the response. */
export class Unusable extends Error {}

export class Newsletter {
  unreachable = new Set(); // addresses
  mailedAt = new Map(); // the addresses that got a mail in the last ten minutes, and when
  mailsOfDay = []; // each mail of the last day that was sent, or may have been: its address, and when
  // Addresses to opt out of everything, and how often the job found no contact; in your program: a table.
  optOuts = new Map();
  #pending = new Map(); // in your program: a table, whose rows expire
  #clicks = new Map(); // the last click of each address that is running
  #seenEvents = new Set();

  constructor(serviceUrl, key, wait = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000))) {
    Object.assign(this, { serviceUrl, key, wait });
  }

  /**
   * Asks for a confirmation by mail. The address is no contact before it.
   *
   * Returns the id of the mail, or `undefined` if none may be sent now: an address gets one in ten minutes, and five in
   * a day. Show the visitor the same page in both cases. After an exception, the visitor can try again immediately.
   */
  async signUp(address, firstName) {
    const token = randomUUID();
    address = normalized(address);
    const now = performance.now();
    for (const [other, at] of this.mailedAt) if (now - at >= 600_000) this.mailedAt.delete(other);
    this.mailsOfDay = this.mailsOfDay.filter(({ at }) => now - at < 86_400_000);
    const hasEnough = this.mailsOfDay.filter((other) => other.address === address).length >= 5;
    if (hasEnough || this.mailedAt.has(address) || this.unreachable.has(address)) return undefined;
    this.mailedAt.set(address, now);
    const thisMail = { address, at: now };
    this.mailsOfDay.push(thisMail);
    this.#pending.set(token, { address, firstName });
    const mail = {
      from: "news@example.com",
      to: address,
      subject: "Please confirm your address", // no text from the form: a stranger may have written it
      text: `https://example.com/confirm?token=${token}`,
    };
    try {
      const { id } = parsed(await this.#send("POST", "/emails", mail));
      if (typeof id !== "string") throw new Unusable("the mail has no id");
      return id;
    } catch (error) {
      this.mailedAt.delete(address); // the visitor can try again immediately
      // Otherwise it may have been sent, and counts: a stranger could have it sent again and again.
      if (wasNotSent(error)) this.mailsOfDay = this.mailsOfDay.filter((other) => other !== thisMail);
      throw error;
    }
  }

  /**
   * Records the consent to the topic `news`, after the click. Returns whether it is recorded.
   *
   * It is not if the token is unknown. If another click or the job was running for the address, it may not be, and the
   * person can click again. A new contact, or one that had opted out of everything, is subscribed to no other topic,
   * whatever its default.
   */
  async confirm(token) {
    const signup = this.#pending.get(token);
    if (!signup) return false;
    const waits = this.#clicks.has(signup.address);
    return this.#oneByOne(signup.address, () => this.#confirm(token, signup, waits));
  }

  async #confirm(token, { address, firstName }, hasWaited) {
    if (hasWaited) {
      // Another click has ended, maybe with a failure, and an opt-out may be newer than both. Send nothing.
      const { topics, unsubscribed } = await this.#retrieve(address);
      const isOn = topics.news && !unsubscribed && !this.optOuts.has(address);
      if (isOn) this.#pending.delete(token);
      return isOn;
    }
    let contact = await this.#find(address);
    // In the last case, an earlier click has created the contact, and then it failed.
    const startsOver = !contact || contact.unsubscribed || this.optOuts.has(address);
    if (!contact) {
      this.optOuts.set(address, 0); // before the create: a new contact has the default of every topic
      await this.#send("POST", "/contacts", { email: address, first_name: firstName, on_conflict: "skip" }, 3);
    }
    if (this.optOuts.has(address)) {
      if (!contact || !isOptedOut(contact)) contact = await this.#record(address, "unsubscribe");
      this.optOuts.delete(address);
    }
    for (const [topic, isSubscribed] of Object.entries(contact.topics)) {
      if (topic === "news") continue;
      // The other answers "no" are recorded again: they may be mere defaults, and a default can change.
      if (startsOver || !isSubscribed) await this.#record(address, "unsubscribe", topic);
    }
    await this.#record(address, "subscribe", "news");
    if (startsOver) await this.#record(address, "subscribe"); // last: until now, no broadcast was delivered
    this.#pending.delete(token);
    return true;
  }

  /** Opts out whom a click has created, before it failed. A job calls it each minute until `optOuts` is empty. */
  async sendOptOuts() {
    let failed;
    for (const address of [...this.optOuts.keys()]) {
      try {
        await this.#oneByOne(address, async () => {
          const missed = this.optOuts.get(address);
          if (missed === undefined) return;
          const contact = await this.#find(address);
          if (contact) {
            if (!isOptedOut(contact)) await this.#record(address, "unsubscribe");
          } else if (missed < 5) {
            return this.optOuts.set(address, missed + 1); // the service may still create the contact
          }
          this.optOuts.delete(address);
        });
      } catch (error) {
        console.error("an opt-out failed, and the next run of the job retries it:", error);
        failed = error; // the other addresses do not wait for this one
      }
    }
    if (failed) throw failed;
  }

  /** Acts on an event of the service, once: the service may deliver it several times. */
  handle({ id, type, data }) {
    if (this.#seenEvents.has(id)) return;
    const bounced = type === "email.bounced" && data.bounce_type === "Permanent";
    if (bounced || type === "email.complained") {
      if (typeof data.to !== "string" || data.to.trim() === "") throw new Unusable("the event has no address");
      this.unreachable.add(normalized(data.to));
    }
    this.#seenEvents.add(id); // last: an event that failed must be handled again
  }

  /** Runs a function after those that are running for this address. In your program: with its row locked. */
  async #oneByOne(address, run) {
    const click = (this.#clicks.get(address) ?? Promise.resolve()).then(run, run);
    this.#clicks.set(address, click);
    try {
      return await click;
    } finally {
      if (this.#clicks.get(address) === click) this.#clicks.delete(address);
    }
  }

  /** Records the answer `subscribe` or `unsubscribe`. Returns the contact, which has it. */
  async #record(address, answer, topic) {
    // An opt-in is not repeated, and has little time: it could undo an opt-out that was made in between. The person
    // can click again.
    const [attempts, seconds] = answer === "unsubscribe" ? [3, 30] : [1, 5];
    await this.#send("POST", `${contactPath(address)}/${answer}`, { topic }, attempts, seconds);
    // A gateway can send a 200, too.
    const contact = await this.#retrieve(address);
    const isOn = topic ? contact.topics[topic] : !contact.unsubscribed;
    if (isOn !== (answer === "subscribe")) throw new Unusable(`${answer} is not recorded`);
    return contact;
  }

  async #retrieve(address) {
    const contact = parsed(await this.#send("GET", contactPath(address), undefined, 3));
    if (normalized(contact.email ?? "") !== address || !contact.topics) throw new Unusable("this is not the contact");
    return contact;
  }

  /** Returns the contact, or `undefined` if there is none. */
  async #find(address) {
    try {
      return await this.#retrieve(address);
    } catch (error) {
      if (error.status !== 404) throw error;
      // A gateway can send a 404, too.
      if (await this.#isListed(address)) throw error;
    }
  }

  async #isListed(address) {
    // The query also finds longer addresses that contain this one, and the newest contacts come first.
    const query = new URLSearchParams({ query: address, limit: 200 });
    for (;;) {
      const { data, next } = parsed(await this.#send("GET", `/contacts?${query}`, undefined, 3));
      if (!Array.isArray(data)) throw new Unusable("this is not a list");
      if (data.some(({ email }) => normalized(email) === address)) return true;
      if (data.length === 0) return false;
      if (!next || next === query.get("after")) throw new Unusable("the list has no end");
      query.set("after", next);
    }
  }

  /** Sends a request, and returns the body of the response. Only what may safely be repeated has several attempts. */
  async #send(method, path, body, attempts = 1, timeout = 30) {
    for (;;) {
      attempts -= 1;
      let seconds = 1;
      try {
        const response = await fetch(this.serviceUrl + path, {
          method,
          headers: { authorization: `Bearer ${this.key}`, "content-type": "application/json" },
          body: JSON.stringify(body),
          redirect: "manual", // a redirect is a failure: it could lead the request to another host
          signal: AbortSignal.timeout(timeout * 1000),
        });
        const text = await response.text();
        if (response.ok) return text;
        seconds = secondsOf(response.headers.get("retry-after"));
        const isOver = attempts === 0 || seconds > 60; // others wait for the address, too
        if (!TRANSIENT.includes(response.status) || isOver) throw new Refused(response.status, text);
      } catch (error) {
        const isBroken = error instanceof TypeError || error.name === "TimeoutError"; // or there was no connection
        if (!isBroken || attempts === 0) throw error;
      }
      await this.wait(seconds);
    }
  }
}

/** Whether no broadcast reaches a contact. Another opt-out could replace the reason `complaint` of a spam report. */
function isOptedOut({ unsubscribed, unsubscribe_reason }) {
  return unsubscribed || unsubscribe_reason === "complaint";
}

/** Whether the service has certainly not applied a request: it refused it, or there was no connection. */
function wasNotSent({ status, cause }) {
  if (status) return status === 501 || (status >= 400 && status < 500 && status !== 408);
  return ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN"].includes(cause?.code);
}

/** Returns the wait that `Retry-After` asks for, by a number of seconds or a date: at least 1 s. */
function secondsOf(retryAfter) {
  const seconds = /^\d+$/.test(retryAfter) ? Number(retryAfter) : (Date.parse(retryAfter) - Date.now()) / 1000;
  return seconds > 1 ? seconds : 1; // also if it is neither of them, or not there
}

function normalized(address) {
  return address.trim().toLowerCase();
}

/** Returns the JSON object of a response. */
function parsed(text) {
  let value;
  try { value = JSON.parse(text); } catch { /* a page, or nothing */ }
  const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
  if (!isObject) throw new Unusable("the response is no JSON object");
  return value;
}

function contactPath(address) {
  return `/contacts/${encodeURIComponent(address)}`;
}

/** Whether the service sent this delivery, and lately: a MAC over the raw body, compared in constant time. */
export function isGenuine(secret, headers, body, now) {
  const timestamp = headers["webhook-timestamp"] ?? "";
  const mac = createHmac("sha256", secret).update(`${timestamp}.`).update(body).digest("hex");
  const signature = Buffer.from(headers["webhook-signature"] ?? "");
  if (signature.length !== mac.length || !timingSafeEqual(signature, Buffer.from(mac))) return false;
  return /^\d+$/.test(timestamp) && Math.abs(now - Number(timestamp)) <= 300;
}

/** Starts a server for deliveries. Resolves when it listens. */
export function serveWebhooks(newsletter, secret, port = 0) {
  const statusOf = async (headers, body) => {
    if (!isGenuine(secret, headers, body, Date.now() / 1000)) return 401;
    let event;
    try { event = JSON.parse(body); } catch { return 400; }
    if (typeof event?.id !== "string" || !event.data) return 400; // signed, but not an event
    await newsletter.handle(event);
    return 204;
  };
  const limits = { requestTimeout: 10_000, connectionsCheckingInterval: 1_000 }; // ms; the defaults allow minutes
  const server = createServer(limits, async (request, response) => {
    const chunks = [];
    let length = 0;
    try {
      for await (const chunk of request) {
        length += chunk.length;
        if (length > 2 * 1024 * 1024) return response.writeHead(413).end(); // leaving the loop ends the connection
        chunks.push(chunk);
      }
    } catch {
      return; // the connection broke
    }
    let status;
    try {
      status = await statusOf(request.headers, Buffer.concat(chunks));
    } catch (error) {
      console.error("an event was not handled, and the service delivers it again:", error);
      status = error instanceof Unusable ? 400 : 500;
    }
    response.writeHead(status).end();
  });
  return new Promise((resolve) => server.listen(port, "127.0.0.1", () => resolve(server)));
}
