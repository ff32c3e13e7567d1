// Runs the verifier that was built for wasm32-unknown-unknown: on the corpus, and on deliveries signed here.
// Arguments: the .wasm file, and the files of the corpus.
//
// The module is used as the compiler wrote it, without the glue code of wasm-bindgen: the clock is the only import
// that the verifier calls. Its name ends with a hash.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { readFile } from "node:fs/promises";

const SECRET = "6Jm0nFq2pXvZk4Tt";
const BODY = '{"id":"evt_1","type":"email.sent","created_at":1700000000,"data":{"subject":"Grüße"}}';

const [wasm, ...corpus] = process.argv.slice(2);
const module = await WebAssembly.compile(await readFile(wasm));
const imports = {};
let clock = Date.now;
let clockReads = 0;
for (const { module: from, name } of WebAssembly.Module.imports(module)) {
  imports[from] ??= {};
  imports[from][name] = /^__wbg_now_[0-9a-f]+$/.test(name)
    ? () => {
        clockReads += 1;
        return clock();
      }
    : () => assert.fail(`the verifier called ${name}`);
}
const { exports } = await WebAssembly.instantiate(module, imports);

// The memory may grow in a call, which detaches earlier views of it.
function buffer() {
  return Buffer.from(exports.memory.buffer, exports.buffer(), exports.capacity());
}

function sign(timestamp, body) {
  return createHmac("sha256", SECRET).update(`${timestamp}.${body}`).digest("hex");
}

function verify(signature, timestamp, body) {
  const parts = [signature, timestamp, body].map((part) => Buffer.from(part));
  buffer().set(Buffer.concat(parts));
  return exports.verify(...parts.map((part) => part.length));
}

let verified = 0;
const wrong = [];
for (const path of corpus) {
  const file = await readFile(path);
  buffer().set(file);
  const count = exports.load(file.length);
  for (let index = 0; index < count; index += 1) {
    const now = Number(exports.now(index));
    // Rust cannot represent a time before 1970 on this target.
    if (now < 0) continue;
    clock = () => now * 1000;
    const length = exports.check(index);
    if (length > 0) wrong.push(buffer().toString("utf8", 0, length));
    verified += 1;
  }
}
clock = Date.now;
console.log(`${verified} deliveries of the corpus`);
assert.ok(verified >= 390, "the corpus was read");
assert.deepEqual(wrong, [], "every verdict is the expected one");

const now = Math.floor(Date.now() / 1000);
for (const [description, expected, signature, timestamp, body] of [
  ["a genuine delivery", 200, sign(now, BODY), `${now}`, BODY],
  ["a delivery near the edge of the window", 200, sign(now - 290, BODY), `${now - 290}`, BODY],
  ["a delivery that is too old", 401, sign(now - 310, BODY), `${now - 310}`, BODY],
  ["a delivery from the future", 401, sign(now + 310, BODY), `${now + 310}`, BODY],
  ["a changed body", 401, sign(now, BODY), `${now}`, BODY.replace("evt_1", "evt_2")],
  ["a malformed signature", 400, "v1,abc", `${now}`, BODY],
  ["a body that is not an event", 400, sign(now, "[]"), `${now}`, "[]"],
]) {
  const status = verify(signature, timestamp, body);
  assert.equal(status, expected, description);
  console.log(`${description}: ${status}`);
}
assert.equal(exports.sign_and_verify(), 200, "a delivery signed with the same clock");
assert.ok(clockReads > 0, "the clock was read");

// No clock may stop the module. One before 1970 counts as 1970.
for (const time of [-1, Number.MIN_SAFE_INTEGER, -Infinity, NaN]) {
  clock = () => time;
  assert.equal(verify(sign(now, BODY), `${now}`, BODY), 401, `the clock returns ${time}`);
}
for (const time of [Number.MAX_SAFE_INTEGER, Infinity]) {
  clock = () => time;
  assert.equal(verify(sign(now, BODY), `${now}`, BODY), 401, `the clock returns ${time}`);
  assert.equal(exports.sign_and_verify(), 200, `the clock returns ${time}`);
}
console.log("a clock before 1970 or in the far future: 401");
