// Uses the client that @hey-api/openapi-ts generates from `openapi/audience.json`.
//
//     node client.js URL FULL_KEY SENDING_KEY
//
// The mock is prepared as for `client.py`.

import {
  createContact,
  createContactBatch,
  listContacts,
  mergeContactProperties,
  retrieveContact,
  sendEmail,
  subscribeContact,
  unsubscribeContact,
} from './generated';
import type { ApiError, BatchResult, Condition, Contact, Mailbox, NewContact, Rule } from './generated';
import { createClient } from './generated/client';

// What the program needs of node, so that it needs no package with its types.
declare const process: { argv: string[]; exitCode?: number };

const ada = 'ada@example.com';
const [baseUrl = '', fullKey = '', sendingKey = ''] = process.argv.slice(2);
const clientWith = (key: string) => createClient({ baseUrl, auth: () => key });
const client = clientWith(fullKey);

function equal(found: unknown, expected: unknown) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(expected)];
  if (a !== b) throw new Error(`${a}, not ${b}`);
}

function contains(text: string | undefined, part: string) {
  if (!text?.includes(part)) throw new Error(`${text} does not contain ${part}`);
}

/** Asserts that a result is this refusal, and returns its message. */
function refused(result: { error?: ApiError; response: Response }, status: number, code: string): string {
  equal([result.response.status, result.error?.error.code], [status, code]);
  return result.error?.error.message ?? '';
}

async function create() {
  const body: NewContact = { email: ada, first_name: 'Ada', properties: { plan: 'pro', seats: 3 } };
  const created = await createContact({ client, body });
  equal([created.response.status, created.data?.properties], [201, { plan: 'pro', seats: 3 }]);
  equal((await createContact({ client, body })).response.status, 200);

  const merged = await mergeContactProperties({ client, path: { address: ada }, body: { properties: { seats: 4 } } });
  equal(merged.data?.properties, { plan: 'pro', seats: 4 });
}

async function batch() {
  const body: NewContact[] = [
    { email: ada, on_conflict: 'skip' },
    { email: 'bob+news@example.com', properties: { plan: 'pro' } },
    { email: 'no address' },
  ];
  const { data: report } = await createContactBatch({ client, body, throwOnError: true });
  const results: BatchResult[] = report.data;
  equal(results.map((result) => result.status), ['skipped', 'created', 'validation_error']);
  contains(results[2]?.message, 'email address');
}

async function lists() {
  const isPro: Condition = { field: 'property', key: 'plan', op: 'is', value: 'pro' };
  const rule: Rule = { match_: 'all', conditions: [isPro, { field: 'engagement', what: 'opened', op: 'never' }] };
  const rules = JSON.stringify(rule);
  const addresses: string[] = [];
  let after: string | undefined;
  for (;;) {
    const { data: page } = await listContacts({ client, query: { limit: 1, rules, after }, throwOnError: true });
    if (page.data.length === 0) break;
    addresses.push(...page.data.map((contact) => contact.email));
    after = page.next;
  }
  equal(addresses, ['bob+news@example.com', ada]);
  equal((await listContacts({ client, query: { query: 'charles' } })).data?.data[0]?.unsubscribed, true);

  contains(refused(await listContacts({ client, query: { rules: '{' } }), 422, 'validation_error'), 'rules');
}

async function consent() {
  const path = { address: ada };
  let changed: Contact | undefined = (await unsubscribeContact({ client, path, body: { topic: 'news' } })).data;
  equal([changed?.unsubscribed, changed?.topics.news], [false, false]);
  changed = (await unsubscribeContact({ client, path, body: { reason: 'preferences' } })).data;
  equal([changed?.unsubscribed, changed?.unsubscribe_reason], [true, 'preferences']);
  changed = (await subscribeContact({ client, path })).data;
  equal([changed?.unsubscribed, changed?.unsubscribe_reason], [false, '']);
  const bob = { address: 'bob+news@example.com' };
  changed = (await subscribeContact({ client, path: bob, body: { topic: 'news' } })).data;
  equal(changed?.topics.news, true);
}

async function errors() {
  const path = { address: ada };
  refused(await retrieveContact({ client, path: { address: 'nobody@example.com' } }), 404, 'not_found');
  const body: NewContact = { email: ada, on_conflict: 'error' };
  refused(await createContact({ client, body }), 409, 'already_exists');
  const gossip = await unsubscribeContact({ client, path, body: { topic: 'gossip' } });
  contains(refused(gossip, 404, 'not_found'), 'gossip');
  const charles = { address: 'charles@example.com' };
  refused(await subscribeContact({ client, path: charles }), 422, 'failed_precondition');
  refused(await createContact({ client: clientWith(sendingKey), body }), 403, 'key_not_permitted');
  refused(await retrieveContact({ client: clientWith('another key'), path }), 401, 'unauthorized');
}

async function undocumented_status() {
  const path = { address: 'hasty@example.com' };
  const { data, error, response } = await retrieveContact({ client, path });
  equal([data, error, response.status], [undefined, 'slow down', 429]);
  const thrown = await retrieveContact({ client, path, throwOnError: true }).catch((thrown: unknown) => ({ thrown }));
  equal(thrown, { thrown: 'slow down' });
}

async function mail() {
  const senders: Mailbox[] = ['shop@example.com', '"Shop, Inc." <shop@example.com>'];
  for (const from of senders) {
    contains(from, '@');
    const sent = await sendEmail({ client, body: { from, to: [ada], subject: 'Hello' } });
    equal(sent.data?.id.length, 12);
  }
}

async function values_that_are_new() {
  const odd = await retrieveContact({ client, path: { address: 'odd@example.com' } });
  equal(odd.data?.unsubscribe_reason, 'bounced');
}

async function main() {
  for (const step of [create, batch, lists, consent, errors, undocumented_status, mail, values_that_are_new]) {
    await step();
    console.log(step.name);
  }
}

main().catch((error: unknown) => {
  console.error(error);
  process.exitCode = 1;
});
