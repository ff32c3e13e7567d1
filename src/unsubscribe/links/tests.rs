use std::collections::HashSet;

use super::*;

const SECRET: &[u8] = b"S3cr3t-0f-32-bytes-0r-m0re-1815!";
const OTHER: &[u8] = b"An0ther-secret-0f-32-bytes-0r-m0";
const BASE: &str = "https://shop.example.com/unsubscribe";

fn links(secrets: &[&[u8]]) -> UnsubscribeLinks {
    UnsubscribeLinks::new(secrets, BASE).unwrap()
}

#[test]
fn the_secrets_come_from_variables_and_links_of_both_are_accepted() {
    let from = |variables: &'static [(&'static str, &'static [u8])]| {
        let read = |name: &'static str| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found
                .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
                .ok_or(VarError::NotPresent)
        };
        UnsubscribeLinks::from_variables(read, BASE)
    };
    const NAME: &str = "AUDIENCE_UNSUBSCRIBE_SECRET";
    const ALSO: &str = "AUDIENCE_UNSUBSCRIBE_SECRET_ALSO";

    let one = from(&[(NAME, SECRET)]).unwrap();
    let both = from(&[(NAME, OTHER), (ALSO, SECRET)]).unwrap();
    let missing = from(&[(ALSO, SECRET)]).unwrap_err().to_string();
    let wrong = [
        from(&[(NAME, OTHER), ("AUDIENCE_UNSUBSCRIBE_SECRET_OLD", SECRET)]),
        from(&[
            (NAME, OTHER),
            ("AUDIENCE_UNSUBSCRIBE_SECRET_OLD_FILE", SECRET),
        ]),
    ];

    let link = one.link("ada@x.io");
    assert!(both.open(token_of(&link)).is_some());
    assert!(one.open(token_of(&both.link("ada@x.io"))).is_none());
    assert!(
        missing.contains("`AUDIENCE_UNSUBSCRIBE_SECRET` and `AUDIENCE_UNSUBSCRIBE_SECRET_FILE`"),
        "{missing}"
    );
    for (refused, right) in wrong.into_iter().zip([
        "the new secret in `AUDIENCE_UNSUBSCRIBE_SECRET_ALSO`",
        "the new secret in `AUDIENCE_UNSUBSCRIBE_SECRET_ALSO_FILE`",
    ]) {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(right), "{text}");
    }
}

/// Links on a day after 2023-11-14.
fn links_on(day: u64) -> UnsubscribeLinks {
    let now = SystemTime::UNIX_EPOCH + (19_675 + u32::try_from(day).unwrap()) * DAY;
    links(&[SECRET]).clock(move || now)
}

fn token_of(url: &str) -> &str {
    url.trim_matches(['<', '>']).rsplit('/').next().unwrap()
}

fn topic_token(links: &UnsubscribeLinks, address: &str, topic: &str) -> String {
    token_of(&links.headers(address, topic)[0].1).to_owned()
}

fn confirmation_token<const N: usize>(
    links: &UnsubscribeLinks,
    address: &str,
    topics: [&str; N],
) -> String {
    let confirmation = links.confirmation(address.into(), topics.map(str::to_owned).into());
    token_of(&links.confirmation_link(&confirmation)).to_owned()
}

#[test]
fn a_confirmation_is_valid_for_three_days_and_no_other_link_is_one() {
    let token = confirmation_token(&links_on(0), " Ada@Example.com", ["offers", "news"]);

    let opened = links_on(3).open_confirmation(&token).unwrap();

    assert_eq!(opened.contact.email, "ada@example.com");
    assert_eq!(Vec::from_iter(opened.topics), ["news", "offers"]);
    assert!(links_on(4).open_confirmation(&token).is_none());
    assert!(links_on(0).open(&token).is_none());
    let link = topic_token(&links_on(0), "ada@example.com", "news");
    assert!(links_on(0).open_confirmation(&link).is_none());
}

#[test]
fn a_token_says_whose_it_is_and_which_topic_it_is_about() {
    let links = links(&[SECRET]);

    for (address, topic) in [
        ("ada@example.com", "news"),
        ("ada@example.com", ""),
        ("...", "news"),
        ("ünïcödé@bücher.example", "Neuigkeiten für alle 📧"),
        ("a\nb@example.com", "a\0b"),
    ] {
        let opened = links.open(&topic_token(&links, address, topic)).unwrap();

        assert_eq!(opened.address, address);
        assert_eq!(opened.topic.as_deref(), Some(topic));
    }
    let opened = links
        .open(token_of(&links.link("ada@example.com")))
        .unwrap();
    assert_eq!(
        (&opened.address[..], opened.topic),
        ("ada@example.com", None)
    );
}

#[test]
fn a_link_for_an_address_that_cannot_be_sent_is_invalid() {
    let links = links(&[SECRET]);

    for address in ["", " ", ".", ".."] {
        assert!(links.open(token_of(&links.link(address))).is_none());
        assert!(links.open(&topic_token(&links, address, "news")).is_none());
    }
}

#[test]
fn no_link_ends_with_a_letter_that_a_mail_program_takes_for_punctuation() {
    let links = links(&[SECRET]);

    for number in 0..1_000 {
        let local = "a".repeat(number % 9);
        let address = format!("{local}{number}@x.io");
        let topic = topic_token(&links, &address, "news");
        let tokens = [
            token_of(&links.link(&address)).to_owned(),
            confirmation_token(&links, &address, ["news"]),
            topic.clone(),
        ];

        for token in tokens {
            assert!(
                token.ends_with(|last: char| last.is_ascii_alphanumeric()),
                "{token}"
            );
        }
        assert_eq!(links.open(&topic).unwrap().address, address);
    }
}

#[test]
fn an_address_in_any_spelling_has_one_token() {
    let links = links(&[SECRET]);

    assert_eq!(
        links.link(" Ada@Example.COM "),
        links.link("ada@example.com")
    );
}

/// Returns the random numbers of a test.
fn random() -> impl FnMut(usize) -> usize {
    let mut generator = fastrand::Rng::with_seed(1815);
    move |below| generator.usize(..below)
}

#[test]
fn of_10_000_forged_and_changed_tokens_none_is_accepted() {
    let links = links(&[SECRET]);
    let strangers = [
        self::links(&[OTHER]),
        self::links(&[b"S3cr3t-0f-32-bytes-0r-m0re-1815?"]),
    ];
    let is_accepted =
        |token: &str| links.open(token).is_some() || links.open_confirmation(token).is_some();
    let genuine: Vec<String> = (0..20)
        .map(|index| {
            let (address, topic) = (format!("a{index}@example.com"), &"news"[..index % 5]);
            match index {
                0..10 => topic_token(&links, &address, topic),
                _ => confirmation_token(&links, &address, [topic]),
            }
        })
        .collect();
    let mut forged = HashSet::new();

    for token in &genuine {
        let bytes = BASE64.decode(token).unwrap();
        // Each bit of the bytes, which are the version, the nonce, the content and the tag.
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            forged.insert(BASE64.encode(changed));
        }
        // Each version.
        for version in (0..=u8::MAX).filter(|version| *version != bytes[0]) {
            forged.insert(BASE64.encode([&[version], &bytes[1..]].concat()));
        }
        // Each end and each beginning cut off, of the bytes and of the text.
        for at in 0..bytes.len() {
            forged.insert(BASE64.encode(&bytes[..at]));
            forged.insert(BASE64.encode(&bytes[at + 1..]));
        }
        for at in 0..token.len() {
            forged.insert(token[..at].to_owned());
            forged.insert(token[at + 1..].to_owned());
        }
        for more in ["=", "A", ".", "/", " ", "%41", "\0", "AAAA"] {
            forged.insert(format!("{token}{more}"));
            forged.insert(format!("{more}{token}"));
        }
    }
    // The front of one and the back of another.
    let mut random = random();
    for one in &genuine {
        for other in &genuine {
            let at = 1 + random(one.len().min(other.len()) - 1);
            forged.insert(format!("{}{}", &one[..at], &other[at..]));
        }
    }
    // With another secret, and at random.
    for index in 0..500 {
        for stranger in &strangers {
            forged.insert(token_of(&stranger.link(format!("a{index}@example.com"))).to_owned());
        }
        let bytes: Vec<u8> = (0..random(90))
            .map(|_| u8::try_from(random(256)).unwrap())
            .collect();
        forged.insert(BASE64.encode([&[LINK][..], &bytes].concat()));
        forged.insert(BASE64.encode([&[CONFIRMATION][..], &bytes].concat()));
        forged.insert(BASE64.encode(bytes));
    }
    for token in &genuine {
        forged.remove(token);
        assert!(is_accepted(token));
    }

    assert!(forged.len() > 10_000, "{}", forged.len());
    let accepted: Vec<_> = forged.iter().filter(|token| is_accepted(token)).collect();
    assert!(accepted.is_empty(), "{accepted:?}");
}

#[test]
fn an_authenticated_token_with_another_version_is_refused() {
    let links = links(&[SECRET]);
    let key = &links.keys[0].link;
    let nonce = [7; NONCE_LENGTH];
    let seal = |version: u8, content: &[u8]| {
        let payload = Payload {
            msg: content,
            aad: &[version],
        };
        let sealed = key.cipher.encrypt(&XNonce::from(nonce), payload).unwrap();
        BASE64.encode([&[version][..], &nonce, &sealed].concat())
    };
    let content = Target::new("ada@example.com", None).to_bytes(links.today());

    assert!(links.open(&seal(LINK, &content)).is_some());
    assert!(links.open(&seal(2, &content)).is_none());
    assert!(links.open(&seal(0, &content)).is_none());
    // And content that no release writes.
    for invalid in [
        &b""[..],
        b"day",
        b"day.len",
        b"day.\0\0\0\x05new",
        b"day.\0\0\0\0\xff",
        b"day.\0\0\0\x02\xff",
        b"day.\xff\xff\xff\xffnews",
    ] {
        assert!(links.open(&seal(LINK, invalid)).is_none(), "{invalid:?}");
    }
}

#[test]
fn no_part_of_the_address_or_the_topic_can_be_read_in_a_token() {
    // Always the same day, and so the same token: one of some hundreds has three given letters by chance.
    let token = topic_token(&links_on(0), "ada.lovelace@example.com", "newsletter");

    let bytes = BASE64.decode(&token).unwrap();
    for part in ["ada", "love", "example", "news", "letter"] {
        assert!(!token.to_ascii_lowercase().contains(part), "{token}");
        assert!(
            !bytes
                .windows(part.len())
                .any(|window| window == part.as_bytes())
        );
    }
}

#[test]
fn a_token_is_made_with_the_first_secret_and_accepted_with_each() {
    let (old, both, new) = (links(&[OTHER]), links(&[SECRET, OTHER]), links(&[SECRET]));
    let (old_link, link) = (old.link("ada@example.com"), both.link("ada@example.com"));

    assert_eq!(link, new.link("ada@example.com"));
    assert!(both.open(token_of(&link)).is_some());
    assert!(both.open(token_of(&old_link)).is_some());
    assert!(new.open(token_of(&old_link)).is_none());
}

#[test]
fn at_each_step_of_a_change_of_the_secret_all_programs_open_the_links_of_all_others() {
    let steps: [&[&[u8]]; 3] = [&[OTHER], &[OTHER, SECRET], &[SECRET, OTHER]];
    let steps = steps.map(links);
    let address = "ada@example.com";
    for pair in steps.windows(2) {
        for (one, other) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
            assert!(one.open(token_of(&other.link(address))).is_some());
            let confirmation = confirmation_token(other, address, ["news"]);
            assert!(one.open_confirmation(&confirmation).is_some());
        }
    }
    // This is why the new secret does not come first immediately.
    assert!(steps[0].open(token_of(&steps[2].link(address))).is_none());
}

#[test]
fn a_token_is_valid_for_two_years_unless_it_is_set() {
    let token = token_of(&links_on(0).link("ada@example.com")).to_owned();
    let year = SHORTEST_VALIDITY;

    assert!(links_on(0).open(&token).is_some());
    assert!(links_on(730).open(&token).is_some());
    assert!(links_on(731).open(&token).is_none());
    let one_year = |day| links_on(day).valid_for(year).unwrap();
    assert!(one_year(365).open(&token).is_some());
    assert!(one_year(366).open(&token).is_none());
    assert!(
        links_on(9_999)
            .valid_for(Duration::MAX)
            .unwrap()
            .open(&token)
            .is_some()
    );
    // The clock of the machine that made it is ahead.
    let early = token_of(&links_on(2).link("ada@example.com")).to_owned();
    assert!(links_on(0).open(&early).is_some());
    let error = links_on(0).valid_for(year - DAY).unwrap_err();
    assert_eq!(
        error.to_string(),
        "unsubscribe links must be valid for at least 365 days"
    );
}

#[test]
fn a_clock_before_1970_or_far_in_the_future_makes_valid_links() {
    let clocks = [
        SystemTime::UNIX_EPOCH.checked_sub(DAY),
        SystemTime::UNIX_EPOCH.checked_add(10_000 * 365 * DAY),
        // Windows has no such time.
        SystemTime::UNIX_EPOCH.checked_add(u32::MAX * DAY),
    ];
    for now in clocks.into_iter().flatten() {
        let links = links(&[SECRET]).clock(move || now);

        assert!(
            links
                .open(token_of(&links.link("ada@example.com")))
                .is_some()
        );
    }
}

#[test]
fn secrets_that_are_short_empty_or_placeholders_are_refused() {
    let error = |secrets: &[&str]| {
        UnsubscribeLinks::new(secrets, BASE)
            .unwrap_err()
            .to_string()
    };

    assert_eq!(error(&[]), "unsubscribe links need a secret");
    assert_eq!(
        error(&["0123456789abcdef0123456789abcde"]),
        "the secret of unsubscribe links has 31 bytes; it needs at least 32"
    );
    assert!(error(&[""]).contains("is empty"));
    assert!(error(&["<an unsubscribe secret of 32 bytes>"]).contains("placeholder"));
    assert!(error(&["0123456789abcdef0123456789abcdef", "short"]).contains("5 bytes"));
    assert_eq!(
        error(&["'0123456789abcdef0123456789abcdef'"]),
        "the secret of unsubscribe links is in quotation marks, which count as a part of it; remove them"
    );
    assert!(UnsubscribeLinks::new(["it's 32 bytes that nobody guesses"], BASE).is_ok());
    assert!(UnsubscribeLinks::new(["0123456789abcdef0123456789abcdef"], BASE).is_ok());
}

#[test]
fn a_base_url_is_https_or_this_machine_and_has_no_query() {
    let link = |base: &str| {
        let links = UnsubscribeLinks::new([SECRET], base);
        links
            .map(|links| links.link("ada@example.com"))
            .map_err(|error| error.to_string())
    };

    for (base, start) in [
        (BASE, "https://shop.example.com/unsubscribe/"),
        (
            " https://shop.example.com/u/ ",
            "https://shop.example.com/u/",
        ),
        ("https://shop.example.com", "https://shop.example.com/"),
        (
            "https://bücher.example/ü",
            "https://xn--bcher-kva.example/%C3%BC/",
        ),
        ("http://localhost:8080/u", "http://localhost:8080/u/"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/"),
    ] {
        let link = link(base).unwrap();
        assert!(
            link.starts_with(start) && token_of(&link).len() == link.len() - start.len(),
            "{link}"
        );
    }
    for (base, problem) in [
        ("http://shop.example.com", "must begin with https://"),
        ("ftp://localhost", "must begin with https://"),
        ("mailto:a@example.com", "must begin with https://"),
        ("shop.example.com", "is invalid"),
        ("https://shop.example.com/?a=b", "must not have a query"),
        ("https://shop.example.com/#a", "must not have a query"),
        ("https://ada@shop.example.com/", "must not have a user name"),
        ("https://shop.example.com//u", "leave out one slash"),
        ("https://shop.example.com/u//v/", "leave out one slash"),
        (
            "https://:pass@shop.example.com/",
            "must not have a user name",
        ),
    ] {
        let error = link(base).unwrap_err();
        assert!(error.contains(problem), "{base}: {error}");
    }
}

#[test]
fn debug_shows_no_secret_and_no_key() {
    let text = format!("{:?}", links(&[SECRET]));

    assert_eq!(
        text,
        "UnsubscribeLinks { base_url: \"https://shop.example.com/unsubscribe/\", valid_for: 63072000s, .. }"
    );
}

/// Each rule of RFC 8058 and RFC 2369 about the two headers.
#[test]
fn the_header_pair_follows_rfc_8058_and_rfc_2369_line_by_line() {
    let long = format!("{}@{}.example.com", "a".repeat(64), "b".repeat(60));
    for (address, topic) in [
        ("ada@example.com", "news"),
        (&long[..], "a topic, with: <signs>"),
    ] {
        let [(name, list_unsubscribe), (post_name, post)] =
            links(&[SECRET]).headers(address, topic);
        let url = list_unsubscribe
            .strip_prefix('<')
            .and_then(|url| url.strip_suffix('>'));
        let rules: [(&str, bool); 12] = [
            (
                "8058 3.1: the mail has a List-Unsubscribe header",
                name == "List-Unsubscribe",
            ),
            (
                "8058 3.1: and a List-Unsubscribe-Post header",
                post_name == "List-Unsubscribe-Post",
            ),
            (
                "8058 3.1: List-Unsubscribe has one https URI",
                list_unsubscribe.matches("https:").count() == 1,
            ),
            (
                "8058 3.1: List-Unsubscribe-Post has the single pair List-Unsubscribe=One-Click",
                post == "List-Unsubscribe=One-Click",
            ),
            ("8058 3.1: the URI identifies the recipient and the list", {
                let opened = links(&[SECRET]).open(token_of(&list_unsubscribe)).unwrap();
                opened.address == address && opened.topic.as_deref() == Some(topic)
            }),
            (
                "8058 3.1 and 6: the URI has an opaque part that is hard to forge: 16 bytes of tag",
                {
                    BASE64.decode(token_of(&list_unsubscribe)).unwrap().len()
                        >= 1 + NONCE_LENGTH + 8 + 16
                },
            ),
            (
                "8058 3.1: no cookie or other context is needed: the URI has no user name",
                !list_unsubscribe.contains('@'),
            ),
            (
                "2369 2: URLs stand in angle brackets",
                url.is_some_and(|url| !url.contains(['<', '>'])),
            ),
            (
                "2369 2: no comma and no space in a URL, which would end it",
                !list_unsubscribe.contains([',', ' ', '\t']),
            ),
            (
                "2369 3.2: the URI is one that a mail client can open",
                url.is_some_and(|url| Url::parse(url).is_ok()),
            ),
            (
                "2369 2 and 5322 2.1.1: no line break, and a line of at most 998 characters",
                {
                    let length = name.len() + 2 + list_unsubscribe.len();
                    length <= 998
                        && list_unsubscribe
                            .bytes()
                            .chain(post.bytes())
                            .all(|byte| byte.is_ascii_graphic())
                },
            ),
            ("2369 2: one header of each name", name != post_name),
        ];
        for (rule, holds) in rules {
            assert!(holds, "{rule}: {list_unsubscribe}");
        }
    }
    let [(_, all), _] = links(&[SECRET]).headers_for_all("ada@example.com");
    assert_eq!(
        all,
        format!("<{}>", links(&[SECRET]).link("ada@example.com"))
    );
}
