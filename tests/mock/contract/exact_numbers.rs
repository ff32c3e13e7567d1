//! Section 2.8: numbers of different kinds are compared without rounding.

use serde_json::{Value, json};

use super::Api;

#[test]
fn section_2_8_a_whole_number_compares_exactly_with_a_fraction_or_an_exponent() {
    let api = Api::start();
    api.create_with("a@example.com", json!({"x": 9_007_199_254_740_993_u64}));
    api.create_with("b@example.com", json!({"x": 9_007_199_254_740_992.0}));
    api.create_with("c@example.com", json!({"x": u64::MAX}));

    let matching = |op: &str, value: Value| {
        api.matching(json!({"field": "property", "key": "x", "op": op, "value": value}))
    };

    // 9007199254740993 is not a float: as one, it would be 9007199254740992.
    let float = json!(9_007_199_254_740_992.0);
    assert_eq!(matching("is", float.clone()), ["b@example.com"]);
    assert_eq!(
        matching("greater_than", float),
        ["a@example.com", "c@example.com"]
    );
    assert_eq!(
        matching("less_than", json!(9_007_199_254_740_993_u64)),
        ["b@example.com"]
    );
    // 2^64 is one more than the greatest integer.
    assert_eq!(matching("is", json!(18_446_744_073_709_551_616.0)), [""; 0]);
    assert_eq!(
        matching("less_than", json!(18_446_744_073_709_551_616.0)).len(),
        3
    );
}
