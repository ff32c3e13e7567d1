"""Uses the client that openapi-python-client generates from `openapi/audience.json`.

    client.py URL FULL_KEY SENDING_KEY

The mock at URL has the topic `news` and the contact `charles@example.com`, who reported spam. Its response to the path
`/contacts/odd%40example.com` has a reason that the description does not list, and the one to
`/contacts/hasty%40example.com` a status.
"""

import json
import sys

from generated import AuthenticatedClient
from generated.api.consent import subscribe_contact, unsubscribe_contact
from generated.api.contacts import (
    create_contact,
    create_contact_batch,
    list_contacts,
    merge_contact_properties,
    retrieve_contact,
)
from generated.api.mail import send_email
from generated.errors import UnexpectedStatus
from generated.models import (
    AcceptedEmail,
    ApiError,
    BatchReport,
    BatchResultStatus,
    Contact,
    ContactPage,
    ContactRecord,
    EngagementEver,
    EngagementEverOp,
    EngagementEverWhat,
    NewContact,
    NewContactOnConflict,
    NewEmail,
    OptIn,
    OptOut,
    OptOutReason,
    Properties,
    PropertiesToMerge,
    PropertyIs,
    PropertyIsOp,
    Rule,
    RuleMatch,
    UnsubscribeReason,
)

ADA = "ada@example.com"
url, full_key, sending_key = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=full_key, raise_on_unexpected_status=True)


def equal(found, expected):
    assert found == expected, f"{found!r}, not {expected!r}"


def refused(response, status, code):
    """Asserts that a response is this refusal, and returns its message."""
    equal(response.status_code, status)
    assert isinstance(response.parsed, ApiError), response
    equal(response.parsed.error.code, code)
    return response.parsed.error.message


def create():
    ada = NewContact(email=ADA, first_name="Ada", properties=Properties.from_dict({"plan": "pro", "seats": 3}))
    created = create_contact.sync_detailed(client=client, body=ada)
    equal(created.status_code, 201)
    assert isinstance(created.parsed, ContactRecord)
    equal(created.parsed.properties.to_dict(), {"plan": "pro", "seats": 3})
    equal(create_contact.sync_detailed(client=client, body=ada).status_code, 200)

    merge = PropertiesToMerge(Properties.from_dict({"seats": 4}))
    merged = merge_contact_properties.sync(ADA, client=client, body=merge)
    assert isinstance(merged, Contact)
    equal(merged.properties.to_dict(), {"plan": "pro", "seats": 4})


def batch():
    entries = [
        NewContact(email=ADA, on_conflict=NewContactOnConflict.SKIP),
        NewContact(email="bob+news@example.com", properties=Properties.from_dict({"plan": "pro"})),
        NewContact(email="no address"),
    ]
    report = create_contact_batch.sync(client=client, body=entries)
    assert isinstance(report, BatchReport)
    statuses = [BatchResultStatus.SKIPPED, BatchResultStatus.CREATED, BatchResultStatus.VALIDATION_ERROR]
    equal([result.status for result in report.data], statuses)
    assert "email address" in report.data[2].message


def lists():
    is_pro = PropertyIs(field="property", key="plan", op=PropertyIsOp.IS, value="pro")
    never_opened = EngagementEver(field="engagement", what=EngagementEverWhat.OPENED, op=EngagementEverOp.NEVER)
    rule = Rule(match=RuleMatch.ALL, conditions=[is_pro, never_opened])
    rules = json.dumps(rule.to_dict())
    page = list_contacts.sync(client=client, limit=1, rules=rules)
    addresses = []
    while page.data:
        assert isinstance(page, ContactPage)
        addresses += [contact.email for contact in page.data]
        page = list_contacts.sync(client=client, limit=1, rules=rules, after=page.next_)
    equal(addresses, ["bob+news@example.com", ADA])
    equal(list_contacts.sync(client=client, query="charles").data[0].unsubscribed, True)

    assert "rules" in refused(list_contacts.sync_detailed(client=client, rules="{"), 422, "validation_error")


def consent():
    changed = unsubscribe_contact.sync(ADA, client=client, body=OptOut(topic="news"))
    assert isinstance(changed, Contact)
    equal((changed.unsubscribed, changed.topics["news"]), (False, False))
    changed = unsubscribe_contact.sync(ADA, client=client, body=OptOut(reason=OptOutReason.PREFERENCES))
    equal((changed.unsubscribed, changed.unsubscribe_reason), (True, UnsubscribeReason.PREFERENCES))
    changed = subscribe_contact.sync(ADA, client=client)
    equal((changed.unsubscribed, changed.unsubscribe_reason), (False, UnsubscribeReason.NONE))
    changed = subscribe_contact.sync("bob+news@example.com", client=client, body=OptIn(topic="news"))
    equal(changed.topics["news"], True)


def errors():
    refused(retrieve_contact.sync_detailed("nobody@example.com", client=client), 404, "not_found")
    again = NewContact(email=ADA, on_conflict=NewContactOnConflict.ERROR)
    refused(create_contact.sync_detailed(client=client, body=again), 409, "already_exists")
    gossip = unsubscribe_contact.sync_detailed(ADA, client=client, body=OptOut(topic="gossip"))
    assert "gossip" in refused(gossip, 404, "not_found")
    refused(subscribe_contact.sync_detailed("charles@example.com", client=client), 422, "failed_precondition")
    sending = AuthenticatedClient(base_url=url, token=sending_key)
    refused(create_contact.sync_detailed(client=sending, body=again), 403, "key_not_permitted")
    unknown = AuthenticatedClient(base_url=url, token="another key")
    refused(retrieve_contact.sync_detailed(ADA, client=unknown), 401, "unauthorized")


def undocumented_status():
    lenient = AuthenticatedClient(base_url=url, token=full_key)
    equal(retrieve_contact.sync("hasty@example.com", client=lenient), None)
    try:
        retrieve_contact.sync("hasty@example.com", client=client)
    except UnexpectedStatus as error:
        return equal(error.status_code, 429)
    raise AssertionError("no exception")


def mail():
    for sender in ["shop@example.com", '"Shop, Inc." <shop@example.com>']:
        sent = send_email.sync(client=client, body=NewEmail(from_=sender, to=[ADA], subject="Hello"))
        assert isinstance(sent, AcceptedEmail), sent


def values_that_are_new():
    equal(retrieve_contact.sync("odd@example.com", client=client).unsubscribe_reason, "bounced")


for step in [create, batch, lists, consent, errors, undocumented_status, mail, values_that_are_new]:
    step()
    print(step.__name__)
