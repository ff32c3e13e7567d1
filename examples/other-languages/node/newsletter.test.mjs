// The tests of the newsletter: `node --test`.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, request } from "node:http";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { Mock, startNewsletter } from "./fixtures.mjs";
import { Unusable, serveWebhooks } from "./newsletter.mjs";

let mock, newsletter, port, stop;
before(async () => { mock = await Mock.start(); });
after(() => mock?.stop());
beforeEach(async () => { ({ newsletter, port, stop } = await startNewsletter(mock)); });
afterEach(() => stop?.());

const data = async (path) => (await mock.control("GET", path)).data;

const statuses = async () => (await data("requests")).map((request) => request.status);

/** Returns the token in the link of the last mail. */
async function mailedToken() {
  const mail = (await data("emails")).at(-1);
  return mail.body.text.split("token=")[1];
}

test("who signs up is a contact only after the confirmation", async () => {
  await newsletter.signUp("cy@example.com", "Cy");

  const [mail] = await data("emails");
  assert.deepEqual([mail.to, mail.subject], [["cy@example.com"], "Please confirm your address"]);
  const addresses = (await data("contacts")).map((contact) => contact.email);
  assert.ok(!addresses.includes("cy@example.com"));

  assert.equal(await newsletter.confirm(await mailedToken()), true);

  assert.deepEqual((await mock.contact("cy@example.com")).answers, { news: true, offers: false });
  assert.equal(await newsletter.confirm("another token"), false);
});

test("an address gets one confirmation mail in ten minutes", async () => {
  await mock.control("POST", "faults", { status: 501, times: 1, path: "/emails" });
  await assert.rejects(newsletter.signUp("cy@example.com", "Cy"), { status: 501 });

  assert.ok(await newsletter.signUp("cy@example.com", "Cy"));
  assert.equal(await newsletter.signUp(" CY@example.com", "Cy"), undefined);

  assert.equal((await data("emails")).length, 1);
  newsletter.mailedAt.set("cy@example.com", performance.now() - 600_000);
  assert.ok(await newsletter.signUp("cy@example.com", "Cy"));
});

test("who tries again after a failure gets a mail", async () => {
  const bodies = ["", "{}", "[]", '{"id": null}'].map((body) => ({ status: 202, body }));
  const faults = [...bodies, { status: 503 }, { close: "after" }];
  for (const [number, fault] of faults.entries()) {
    await mock.control("POST", "faults", { ...fault, times: 1, path: "/emails" });
    await assert.rejects(newsletter.signUp(`cy${number}@example.com`, "Cy"));

    assert.ok(await newsletter.signUp(`cy${number}@example.com`, "Cy"));
    assert.equal(await newsletter.signUp(`cy${number}@example.com`, "Cy"), undefined);
  }
});

test("an address gets five mails in a day, and those that may have been sent count", async () => {
  await mock.control("POST", "faults", { status: 503, times: 5, path: "/emails" });
  for (let time = 0; time < 5; time++) {
    await assert.rejects(newsletter.signUp("cy@example.com", "Cy"), { status: 503 });
  }

  assert.equal(await newsletter.signUp("cy@example.com", "Cy"), undefined);

  assert.deepEqual(await statuses(), Array(5).fill(503));
  assert.ok(await newsletter.signUp("dee@example.com", "Dee"));
  for (const mail of newsletter.mailsOfDay) mail.at -= 86_400_000;
  assert.ok(await newsletter.signUp("cy@example.com", "Cy"));
});

/** Returns a port that nothing listens on. */
async function closedPort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  await once(server.close(), "close");
  return port;
}

test("a confirmation mail that was refused or had no connection does not count", async () => {
  await mock.control("POST", "faults", { status: 422, times: 5, path: "/emails" });
  for (let time = 0; time < 5; time++) {
    await assert.rejects(newsletter.signUp("cy@example.com", "Cy"), { status: 422 });
  }
  const { serviceUrl } = newsletter;
  newsletter.serviceUrl = `http://127.0.0.1:${await closedPort()}`;
  await assert.rejects(newsletter.signUp("cy@example.com", "Cy"));
  newsletter.serviceUrl = serviceUrl;

  assert.ok(await newsletter.signUp("cy@example.com", "Cy"));
});

test("a new contact gets no other topic after a failure and another click", async () => {
  await newsletter.signUp("cy@example.com", "Cy");
  await mock.control("POST", "faults", { status: 501, times: 1, path: "*/unsubscribe" });

  await assert.rejects(newsletter.confirm(await mailedToken()), { status: 501 });
  assert.equal(await newsletter.confirm(await mailedToken()), true);

  const contact = await mock.contact("cy@example.com");
  assert.deepEqual([contact.unsubscribed, contact.answers], [false, { news: true, offers: false }]);
});

test("a new contact whose click failed is opted out by the job or by another link", async () => {
  for (const [address, hasJob] of [["cy@example.com", true], ["dee@example.com", false]]) {
    await newsletter.signUp(address, "Cy");
    await mock.control("POST", "faults", { status: 501, times: 1, path: "*/unsubscribe" });
    await assert.rejects(newsletter.confirm(await mailedToken()), { status: 501 });
    assert.deepEqual([...newsletter.optOuts.keys()], [address]);
    if (hasJob) {
      await newsletter.sendOptOuts();
      assert.equal((await mock.contact(address)).unsubscribed, true);
    }
    newsletter.mailedAt.clear(); // ten minutes later
    await newsletter.signUp(address, "Cy");

    assert.equal(await newsletter.confirm(await mailedToken()), true);

    const contact = await mock.contact(address);
    assert.deepEqual([contact.unsubscribed, contact.answers], [false, { news: true, offers: false }]);
    assert.equal(newsletter.optOuts.size, 0);
  }
});

test("the job looks a few times for a contact whose creation had no response", async () => {
  for (const [address, isCreated] of [["cy@example.com", true], ["dee@example.com", false]]) {
    await newsletter.signUp(address, "Cy");
    await mock.control("POST", "faults", { status: 504, times: 3, method: "POST", path: "/contacts" });
    await assert.rejects(newsletter.confirm(await mailedToken()), { status: 504 });
    await newsletter.sendOptOuts();
    assert.deepEqual([...newsletter.optOuts.keys()], [address]);
    if (isCreated) {
      await mock.control("PUT", `contacts/${address}`, {});
      await newsletter.sendOptOuts();
      assert.equal((await mock.contact(address)).unsubscribed, true);
    } else {
      for (let run = 0; run < 5; run++) await newsletter.sendOptOuts();
    }
    assert.equal(newsletter.optOuts.size, 0);
  }
});

test("a 404 of a gateway changes nothing", async () => {
  await mock.control("PUT", "contacts/di@example.com", { answers: { offers: true } });
  await newsletter.signUp("di@example.com", "Di");
  const fault = { method: "GET", path: "/contacts/*", status: 404, body: "<html>", times: 1 };
  await mock.control("POST", "faults", fault);

  await assert.rejects(newsletter.confirm(await mailedToken()), { status: 404 });

  assert.deepEqual((await mock.contact("di@example.com")).answers, { offers: true });
  assert.equal(await newsletter.confirm(await mailedToken()), true);
  assert.deepEqual((await mock.contact("di@example.com")).answers, { news: true, offers: true });
});

test("an old contact is found behind newer ones whose addresses contain its own", async () => {
  const newer = Array.from({ length: 200 }, (_, number) => ({ email: `x${number}an@x.io`, created_at: 1_700_000_000 }));
  const old = { email: "an@x.io", created_at: 1_600_000_000 };
  await mock.control("POST", "seed", { contacts: [...newer, old] });
  newsletter.optOuts.set("an@x.io", 5); // the job has looked for the contact a few times
  await mock.control("POST", "faults", { method: "GET", path: "/contacts/*", status: 404, times: 1 });

  await assert.rejects(newsletter.sendOptOuts(), { status: 404 });

  assert.deepEqual([...newsletter.optOuts], [["an@x.io", 5]]);
  await newsletter.sendOptOuts();
  assert.equal((await mock.contact("an@x.io")).unsubscribed, true);
});

test("a list that does not end ends no opt-out", async () => {
  newsletter.optOuts.set("cy@example.com", 5);
  const page = { data: [{ email: "xcy@example.com" }], next: "c1" };
  await mock.control("POST", "faults", { status: 200, body: page, path: "/contacts" });

  await assert.rejects(newsletter.sendOptOuts(), Unusable);

  assert.deepEqual([...newsletter.optOuts], [["cy@example.com", 5]]);
});

const LIES = ["<html>", "", "[]", "{}", '{"ok": true}'];

test("an answer of a gateway loses no opt-out and confirms nothing", async () => {
  for (const [number, body] of LIES.entries()) {
    const address = `cy${number}@example.com`;
    await newsletter.signUp(address, "Cy");
    for (const path of ["*/unsubscribe", "*/subscribe"]) {
      await mock.control("POST", "faults", { status: 200, body, times: 1, path });

      await assert.rejects(newsletter.confirm(await mailedToken()), Unusable);

      assert.deepEqual([...newsletter.optOuts.keys()], path === "*/unsubscribe" ? [address] : []);
    }
    assert.equal((await mock.contact(address)).unsubscribed, true);
    assert.equal(await newsletter.confirm(await mailedToken()), true);
    assert.deepEqual((await mock.contact(address)).answers, { news: true, offers: false });
  }
});

test("the job sends an opt-out until the service has it", async () => {
  for (const [number, body] of LIES.entries()) {
    const address = `cy${number}@example.com`;
    await newsletter.signUp(address, "Cy");
    await mock.control("POST", "faults", { status: 501, times: 1, path: "*/unsubscribe" });
    await assert.rejects(newsletter.confirm(await mailedToken()), { status: 501 });
    await mock.control("POST", "faults", { status: 200, body, times: 1, path: "*/unsubscribe" });

    await assert.rejects(newsletter.sendOptOuts(), Unusable);

    assert.deepEqual([...newsletter.optOuts.keys()], [address]);
    await newsletter.sendOptOuts();
    assert.equal((await mock.contact(address)).unsubscribed, true);
    assert.equal(newsletter.optOuts.size, 0);
  }
});

test("the reason of a spam report stays", async () => {
  await newsletter.signUp("bob@example.com", "Bob");
  newsletter.optOuts.set("bob@example.com", 0);

  await assert.rejects(newsletter.confirm(await mailedToken()), { status: 422 });
  newsletter.optOuts.set("bob@example.com", 0);
  await newsletter.sendOptOuts();

  assert.equal(newsletter.optOuts.size, 0);
  const optOuts = (await data("requests")).filter(({ path }) => path.endsWith("/unsubscribe"));
  assert.ok(optOuts.every(({ body }) => body.includes("topic")));
});

test("a click that waited for another sends nothing", async () => {
  await mock.control("PUT", "contacts/di@example.com", {});
  await newsletter.signUp("di@example.com", "Di");
  const token = await mailedToken();
  await mock.control("POST", "faults", { status: 501, times: 1, path: "*/subscribe" });

  const [first, second] = await Promise.allSettled([newsletter.confirm(token), newsletter.confirm(token)]);

  assert.deepEqual([first.reason.status, second.value], [501, false]);
  const paths = (await data("requests")).map(({ path }) => path);
  assert.equal(paths.filter((path) => path.endsWith("/subscribe")).length, 1);
  assert.equal(await newsletter.confirm(token), true);
});

test("of two clicks at once, one is recorded", async () => {
  await newsletter.signUp(" Cy@example.com", "Cy");
  const token = await mailedToken();

  assert.deepEqual(await Promise.all([newsletter.confirm(token), newsletter.confirm(token)]), [true, true]);

  const paths = (await data("requests")).map((request) => request.path);
  assert.equal(paths.filter((path) => path.endsWith("/subscribe")).length, 2); // to `news`, and to everything
  assert.deepEqual((await mock.contact("cy@example.com")).answers, { news: true, offers: false });
});

test("a contact keeps its other topics", async () => {
  await mock.control("PUT", "contacts/di@example.com", { answers: { offers: true } });
  await newsletter.signUp("di@example.com", "Di");

  await newsletter.confirm(await mailedToken());

  assert.deepEqual((await mock.contact("di@example.com")).answers, { news: true, offers: true });
});

test("who opted out of everything gets only the newsletter again after the confirmation", async () => {
  const optedOut = { email: "di@example.com", unsubscribe_reason: "manual" };
  await mock.control("PUT", "contacts/di@example.com", optedOut);
  await newsletter.signUp("di@example.com", "Di");

  await newsletter.confirm(await mailedToken());

  const contact = await mock.contact("di@example.com");
  assert.deepEqual([contact.unsubscribed, contact.answers], [false, { news: true, offers: false }]);
});

test("who reported spam cannot be subscribed again", async () => {
  await newsletter.signUp("bob@example.com", "Bob");

  await assert.rejects(newsletter.confirm(await mailedToken()), { status: 422 });

  assert.equal((await mock.contact("bob@example.com")).unsubscribed, true);
});

test("a short outage is waited out", async () => {
  await newsletter.signUp("cy@example.com", "Cy");
  await mock.control("POST", "faults", { method: "POST", status: 503, retry_after: 1, path: "/contacts", times: 2 });

  await newsletter.confirm(await mailedToken());

  assert.deepEqual(await statuses(), [200, 404, 200, 503, 503, 201, ...Array(8).fill(200)]);
});

test("nobody waits for an hour", async () => {
  await newsletter.signUp("cy@example.com", "Cy");
  const waits = [];
  newsletter.wait = async (seconds) => waits.push(seconds);
  for (const retryAfter of ["3600", new Date(Date.now() + 3600_000).toUTCString()]) {
    const headers = { "retry-after": retryAfter };
    await mock.control("POST", "faults", { method: "GET", status: 503, headers, times: 1 });

    await assert.rejects(newsletter.confirm(await mailedToken()), { status: 503 });
  }

  assert.deepEqual(waits, []);
});

test("a retry waits until the date of the response, and at least a second", async () => {
  const date = new Date(Date.now() + 40_000).toUTCString();
  const past = "Sun, 06 Nov 1994 08:49:37 GMT";
  const expected = [[date, 10, 40], [past, 1, 1], ["-5", 1, 1], ["0", 1, 1], ["soon", 1, 1], ["7", 7, 7]];
  for (const [retryAfter, least, most] of expected) {
    const waits = [];
    newsletter.wait = async (seconds) => waits.push(seconds);
    const headers = { "retry-after": retryAfter };
    await mock.control("POST", "faults", { method: "GET", status: 503, headers, times: 1 });

    newsletter.optOuts.set("ada@example.com", 0);
    await newsletter.sendOptOuts();

    assert.equal(waits.length, 1);
    assert.ok(least <= waits[0] && waits[0] <= most, `${retryAfter}: ${waits[0]}`);
  }
});

test("a redirect is not followed", async () => {
  const headers = { location: `${mock.url}/elsewhere` };
  await mock.control("POST", "faults", { status: 302, headers, path: "/emails" });

  await assert.rejects(newsletter.signUp("cy@example.com", "Cy"), { status: 302 });

  assert.deepEqual(await statuses(), [302]);
});

test("a connection that breaks is retried where that is safe", async () => {
  await newsletter.signUp("cy@example.com", "Cy");
  await mock.control("POST", "faults", { method: "POST", close: "after", path: "/contacts", times: 1 });
  await mock.control("POST", "faults", { close: "before", path: "*/subscribe", times: 1 });

  await assert.rejects(newsletter.confirm(await mailedToken()), TypeError);

  assert.deepEqual(await statuses(), [200, 404, 200, null, 200, 200, 200, 200, 200, null]);
});

test("an opt-in that failed is repeated only by another click", async () => {
  await newsletter.signUp("cy@example.com", "Cy");
  await mock.control("POST", "faults", { status: 503, times: 1, path: "*/subscribe" });

  await assert.rejects(newsletter.confirm(await mailedToken()), { status: 503 });

  const before = [200, 404, 200, 201, 200, 200, 200, 200, 503];
  assert.deepEqual(await statuses(), before);
  assert.equal(await newsletter.confirm(await mailedToken()), true);
  assert.deepEqual(await statuses(), [...before, ...Array(7).fill(200)]);
});

test("an address that bounces gets no further mail", async () => {
  await newsletter.signUp("bounce@example.com", "Bo");
  await mock.waitForDeliveries();

  assert.deepEqual([...newsletter.unreachable], ["bounce@example.com"]);
  assert.deepEqual((await data("attempts")).map((attempt) => attempt.status), [204, 204]);
  newsletter.mailedAt.clear(); // ten minutes later
  assert.equal(await newsletter.signUp("bounce@example.com", "Bo"), undefined);
  assert.equal((await data("emails")).length, 1);
});

test("an event that is delivered twice counts once", async () => {
  await mock.control("POST", "delivery-faults", { kind: "duplicate", times: 1 });

  const event = { type: "email.complained", data: { to: "Ada@Example.com" } };
  await mock.control("POST", "events", event);

  assert.deepEqual([...newsletter.unreachable], ["ada@example.com"]);
  assert.equal((await data("attempts")).length, 2);
});

test("a forged delivery is refused", async () => {
  await mock.control("POST", "delivery-faults", { kind: "tampered", times: 1 });

  const event = { type: "email.complained", data: { to: "ada@example.com" } };
  await mock.control("POST", "events", event);

  assert.equal(newsletter.unreachable.size, 0);
  assert.equal((await data("attempts"))[0].status, 401);
});

test("an event without an address is refused, and the next one is handled", async () => {
  await mock.control("POST", "events", { type: "email.complained", data: { to: ["ada@example.com"] } });
  await mock.control("POST", "events", { type: "email.complained", data: { to: " " } });
  await mock.control("POST", "events", { type: "email.complained", data: { to: "ada@example.com" } });

  assert.deepEqual([...newsletter.unreachable], ["ada@example.com"]);
  assert.deepEqual((await data("attempts")).map((attempt) => attempt.status), [400, 400, 204]);
});

test("an event that cannot be handled is delivered again", async () => {
  newsletter.handle = async () => { throw new Error("no space"); };
  const { id } = await mock.control("POST", "events", { type: "email.complained", data: { to: "ada@example.com" } });
  delete newsletter.handle;
  await mock.control("POST", `events/${id}/redeliver`);

  assert.deepEqual([...newsletter.unreachable], ["ada@example.com"]);
  assert.deepEqual((await data("attempts")).map((attempt) => attempt.status), [500, 204]);
});

test("a body that does not arrive in time ends its connection", async () => {
  const server = await serveWebhooks(newsletter, "a-secret-of-the-test");
  assert.equal(server.requestTimeout, 10_000);
  server.headersTimeout = server.requestTimeout = 100; // the test does not wait that long
  const headers = { "content-length": 100 };
  const options = { port: server.address().port, method: "POST", headers, signal: AbortSignal.timeout(300_000) };
  const delivery = request(options);
  delivery.on("error", () => {});
  delivery.write("{");

  const [response] = await once(delivery, "response");

  assert.equal(response.statusCode, 408);
  delivery.destroy();
  server.close();
});

test("a body that is too long is refused before its end", async () => {
  const headers = { "content-length": 3 * 1024 * 1024 };
  const delivery = request({ port, method: "POST", headers, signal: AbortSignal.timeout(300_000) });
  delivery.write(Buffer.alloc(2 * 1024 * 1024 + 1));
  const [response] = await once(delivery, "response");

  assert.equal(response.statusCode, 413);
  delivery.destroy();
});
