// The tests of the newsletter: `node --test`.

import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { Mock, startNewsletter } from "./fixtures.mjs";

let mock, newsletter, stop;
before(async () => { mock = await Mock.start(); });
after(() => mock?.stop());
beforeEach(async () => { ({ newsletter, stop } = await startNewsletter(mock)); });
afterEach(() => stop?.());

const data = async (path) => (await mock.control("GET", path)).data;

test("who signs up is subscribed and gets a mail", async () => {
  await newsletter.signUp("cy@example.com", "Cy");

  assert.deepEqual((await mock.contact("cy@example.com")).answers, { news: true });
  const [mail] = await data("emails");
  assert.deepEqual(mail.to, ["cy@example.com"]);
  assert.equal(mail.subject, "Welcome, Cy");
});

test("who reported spam cannot be subscribed again", async () => {
  await assert.rejects(newsletter.signUp("bob@example.com", "Bob"), { status: 422 });

  assert.equal((await mock.contact("bob@example.com")).unsubscribed, true);
  assert.deepEqual(await data("emails"), []);
});

test("a short outage is waited out", async () => {
  await mock.control("POST", "faults", { status: 503, retry_after: 1, times: 2 });

  await newsletter.signUp("cy@example.com", "Cy");

  const statuses = (await data("requests")).map((request) => request.status);
  assert.deepEqual(statuses, [503, 503, 201, 200, 200]);
});

test("an address that bounces gets no further mail", async () => {
  await newsletter.signUp("bounce@example.com", "Bo");
  await mock.waitForDeliveries();

  assert.deepEqual([...newsletter.unreachable], ["bounce@example.com"]);
  assert.deepEqual((await data("attempts")).map((attempt) => attempt.status), [204, 204]);
});

test("an event that is delivered twice counts once", async () => {
  await mock.control("POST", "delivery-faults", { kind: "duplicate", times: 1 });

  const event = { type: "email.complained", data: { to: "ada@example.com" } };
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
