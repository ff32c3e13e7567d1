"""The tests of the newsletter. `run_tests.py` runs them with or without pytest."""

from newsletter import Refused


def test_who_signs_up_is_subscribed_and_gets_a_mail(mock, newsletter):
    newsletter.sign_up("cy@example.com", "Cy")

    assert mock.contact("cy@example.com")["answers"] == {"news": True}
    [mail] = mock.control("GET", "emails")["data"]
    assert mail["to"] == ["cy@example.com"]
    assert mail["subject"] == "Welcome, Cy"


def test_who_reported_spam_cannot_be_subscribed_again(mock, newsletter):
    try:
        newsletter.sign_up("bob@example.com", "Bob")
        raise AssertionError("it was not refused")
    except Refused as refused:
        assert refused.status == 422

    assert mock.contact("bob@example.com")["unsubscribed"]
    assert mock.control("GET", "emails")["data"] == []


def test_a_short_outage_is_waited_out(mock, newsletter):
    mock.control("POST", "faults", {"status": 503, "retry_after": 1, "times": 2})

    newsletter.sign_up("cy@example.com", "Cy")

    statuses = [request["status"] for request in mock.control("GET", "requests")["data"]]
    assert statuses == [503, 503, 201, 200, 200]


def test_an_address_that_bounces_gets_no_further_mail(mock, newsletter):
    newsletter.sign_up("bounce@example.com", "Bo")
    mock.wait_for_deliveries()

    assert newsletter.unreachable == {"bounce@example.com"}
    assert [attempt["status"] for attempt in mock.control("GET", "attempts")["data"]] == [204, 204]


def test_an_event_that_is_delivered_twice_counts_once(mock, newsletter):
    mock.control("POST", "delivery-faults", {"kind": "duplicate", "times": 1})

    event = {"type": "email.complained", "data": {"to": "ada@example.com"}}
    mock.control("POST", "events", event)

    assert newsletter.unreachable == {"ada@example.com"}
    assert len(mock.control("GET", "attempts")["data"]) == 2


def test_a_forged_delivery_is_refused(mock, newsletter):
    mock.control("POST", "delivery-faults", {"kind": "tampered", "times": 1})

    event = {"type": "email.complained", "data": {"to": "ada@example.com"}}
    mock.control("POST", "events", event)

    assert newsletter.unreachable == set()
    assert mock.control("GET", "attempts")["data"][0]["status"] == 401
