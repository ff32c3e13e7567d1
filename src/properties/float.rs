use serde_json::Number;

/// Returns a float as it is written in JSON, or as `NaN` or `inf`, which JSON cannot represent.
///
/// `Display` of `f64` may write another last digit if two are equally near.
pub(super) fn to_json(float: f64) -> String {
    Number::from_f64(float).map_or_else(|| float.to_string(), |number| number.to_string())
}
