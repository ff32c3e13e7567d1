/// A value or an `Option` of one: what the optional setters of this crate take.
///
/// `None` leaves a setting as it is. The trait is implemented for everything that converts to `T`, for an
/// `Option` of it, and for `&Option<V>` if `&V` converts to `T`, such as `&Option<String>`. The compiler finds
/// `Kind`, which tells the three apart, so nobody has to name it. Only `None` alone has no type: leave out the
/// setter, or write `None::<&str>`.
///
/// # Example: the fields of a form, set or not
///
/// ```
/// use audience::contacts::NewContact;
///
/// # struct Form { first_name: Option<String>, last_name: Option<String>, seats: Option<u32> }
/// # let form = Form { first_name: Some("Ada".to_owned()), last_name: None, seats: Some(3) };
/// let ada = NewContact::new("ada@example.com")
///     .first_name(&form.first_name)
///     .last_name(form.last_name.as_deref())
///     .property("plan", "pro")
///     .property("seats", form.seats);
///
/// let json = serde_json::to_string(&ada)?;
/// assert_eq!(json, r#"{"email":"ada@example.com","first_name":"Ada","properties":{"plan":"pro","seats":3}}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Example: a function that passes a value on
///
/// ```
/// use audience::contacts::{IntoOption, NewContact};
///
/// fn named<Kind>(name: impl IntoOption<String, Kind>) -> NewContact {
///     NewContact::new("ada@example.com").first_name(name)
/// }
///
/// assert_eq!(named("Ada"), named(Some("Ada")));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a `{T}` nor an `Option` of one",
    label = "not a value for this setting",
    note = "the setting takes everything that converts to `{T}`, and an `Option` of it"
)]
pub trait IntoOption<T, Kind>: sealed::Sealed<T, Kind> {
    /// Returns the value, or `None` to leave the setting as it is.
    fn into_option(self) -> Option<T>;
}

impl<T, V: Into<T>> IntoOption<T, kind::Value> for V {
    fn into_option(self) -> Option<T> {
        Some(self.into())
    }
}

impl<T, V: Into<T>> IntoOption<T, kind::Optional> for Option<V> {
    fn into_option(self) -> Option<T> {
        self.map(V::into)
    }
}

impl<'a, T, V> IntoOption<T, kind::Borrowed> for &'a Option<V>
where
    &'a V: Into<T>,
{
    fn into_option(self) -> Option<T> {
        self.as_ref().map(Into::into)
    }
}

mod sealed {
    use super::kind;

    pub trait Sealed<T, Kind> {}

    impl<T, V: Into<T>> Sealed<T, kind::Value> for V {}
    impl<T, V: Into<T>> Sealed<T, kind::Optional> for Option<V> {}
    impl<'a, T, V> Sealed<T, kind::Borrowed> for &'a Option<V> where &'a V: Into<T> {}
}

/// What tells the implementations apart. Without it they would overlap, because `Option` may convert to `T`.
mod kind {
    #[derive(Debug)]
    pub enum Value {}
    #[derive(Debug)]
    pub enum Optional {}
    #[derive(Debug)]
    pub enum Borrowed {}
}
