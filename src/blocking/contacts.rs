use super::Call;
use super::runtime::Runtime;
use super::settings::call_settings;
use crate::contacts::{
    CreateBatch, CreateContact, ListContacts, MergeProperties, NewContact, Properties,
    RecordAnswer, RecordAnswers, RetrieveContact, Subscribe, Unsubscribe,
};

/// The contacts of a sender: the blocking form of
/// [`audience::contacts::Contacts`](crate::contacts::Contacts).
#[derive(Clone, Debug)]
pub struct Contacts {
    pub(super) contacts: crate::contacts::Contacts,
    pub(super) runtime: Runtime,
}

impl Contacts {
    pub(super) fn new(contacts: crate::contacts::Contacts, runtime: Runtime) -> Self {
        Self { contacts, runtime }
    }
}

macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) -> $call:ty;)*) => {
        impl Contacts {$(
            #[doc = concat!("Creates the call [`Contacts::", stringify!($name), "`](crate::contacts::Contacts::", stringify!($name), "), sent by [`send`](Call::send).")]
            pub fn $name(&self, $($argument: $type),*) -> Call<$call> {
                Call::new(self.contacts.$name($($argument),*), self.runtime.clone())
            }
        )*}

        call_settings!($($call),*);
    };
}

calls! {
    create(contact: impl Into<NewContact>) -> CreateContact;
    create_batch(contacts: impl IntoIterator<Item: Into<NewContact>>) -> CreateBatch;
    retrieve(address: impl Into<String>) -> RetrieveContact;
    list() -> ListContacts;
    subscribe(address: impl Into<String>) -> Subscribe;
    unsubscribe(address: impl Into<String>) -> Unsubscribe;
    answer(address: impl Into<String>, topic: impl Into<String>, answer: bool) -> RecordAnswer;
    answers(address: impl Into<String>, answers: impl IntoIterator<Item = (impl Into<String>, bool)>) -> RecordAnswers;
    merge_properties(address: impl Into<String>, properties: impl Into<Properties>) -> MergeProperties;
}
