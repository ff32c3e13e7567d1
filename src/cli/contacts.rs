//! The commands for contacts.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;

use clap::builder::{
    NonEmptyStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser,
};
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use futures_core::Stream as _;
use serde::Serialize;
use serde_json::json;

use super::output::{Failure, NOT_FOUND, Output, REFUSED, ask, interrupt_from_now, json_line};
use super::{Confirmation, Connection, OptInConfirmation, Service};
use crate::address::are_different;
use crate::causes::with_causes;
use crate::client::{CallOptions, is_path_segment};
use crate::contacts::{
    Contact, ContactSummary, Contacts, Erasure, History, ListContacts, NewContact, OnConflict,
    OptOutReason, Page, Properties, PropertyValue, TopicsError, UnsubscribeReason, may_be_own,
    normalized_address,
};
use crate::import::{SyncState, number_or_text};
use crate::rule::{Condition, Rule};
use crate::terminal::{Table, padded, print, printable, text, widest};
use crate::{Error, ErrorKind, Missing, Outcome};

#[derive(Args)]
#[command(after_help = CONTACTS_HELP)]
pub(super) struct ContactsOptions {
    #[command(subcommand)]
    command: ContactsCommand,
    #[command(flatten)]
    service: Service,
}

const CONTACTS_HELP: &str = "\
The interface of the service does not show how a contact is deleted, so `erase` sends the likely request. It has no call
that shows what happened to a contact, so `show --history` asks for one period after the other.

Example:
  audience contacts list --query ada";

#[derive(Subcommand)]
enum ContactsCommand {
    /// Show a contact with its topics
    #[command(after_help = "\
Exit status: 0 if the contact exists, 4 if it does not.

Example:
  audience contacts show ada@example.com --history")]
    Show {
        /// Show the contact with this address
        #[arg(value_name = "ADDRESS", value_parser = parse_address)]
        address: String,
        /// Also show when mail was last delivered, opened, clicked, bounced and reported as spam; takes about 20
        /// requests
        #[arg(long)]
        history: bool,
    },
    /// Create a contact
    Create(Create),
    /// Change names and properties of a contact, and keep all others
    Update(Update),
    /// Give a contact a new address, with its opt-outs, and unsubscribe the old address
    ChangeAddress(ChangeAddress),
    /// List contacts, newest first
    #[command(after_help = "Example:\n  audience contacts list --property plan=pro --limit 10")]
    List {
        #[command(flatten)]
        filter: Filter,
        /// List at most N contacts [default: all]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
    },
    /// Count contacts
    #[command(after_help = "Example:\n  audience contacts count --segment seg_1")]
    Count {
        #[command(flatten)]
        filter: Filter,
    },
    /// Record the answers of a contact for topics, opt-outs first
    SetTopics(SetTopics),
    /// Unsubscribe contacts from everything, or from one topic
    Unsubscribe(Unsubscribe),
    /// Subscribe a contact again, after the person asked for it
    Subscribe(Subscribe),
    /// Erase a person: delete the contact or, if the service cannot, opt it out and empty it
    Erase(Erase),
}

pub(super) async fn run(options: ContactsOptions, output: Output) -> Result<ExitCode, Failure> {
    let connection = options.service.connect().await?;
    let contacts = &connection.contacts;
    match options.command {
        ContactsCommand::Show { address, history } => {
            let contact = retrieve(contacts, &address).await?;
            let history = match history {
                true => {
                    // Some 20 requests to a slow service can take longer than the deadline of one call.
                    let history = contacts.history(&contact.email).no_deadline();
                    let history = history.of_retrieved().await;
                    Some(history.map_err(|error| Failure::from(error).about(&address))?)
                }
                false => None,
            };
            let shown = Shown {
                broadcasts: broadcasts(&contact),
                contact,
                history,
            };
            output.result(&shown, Shown::in_full)?;
        }
        ContactsCommand::Create(create) => create.run(contacts, output).await?,
        ContactsCommand::Update(update) => update.run(contacts, output).await?,
        ContactsCommand::ChangeAddress(change) => {
            change.run(contacts, &options.service, output).await?;
        }
        ContactsCommand::List { filter, limit } => {
            return list(filter.apply(contacts.list()), limit, output).await;
        }
        ContactsCommand::Count { filter } => {
            let count = filter.apply(contacts.list()).count().no_deadline().await?;
            output.result(&json!({"count": count}), |_| format!("{count}\n"))?;
        }
        ContactsCommand::SetTopics(form) => form.run(contacts, &options.service, output).await?,
        ContactsCommand::Subscribe(opt_in) => {
            opt_in.run(contacts, &options.service, output).await?;
        }
        ContactsCommand::Erase(erase) => {
            return erase.run(contacts, &options.service, output).await;
        }
        ContactsCommand::Unsubscribe(unsubscribe) => {
            return unsubscribe.run(&options.service, &connection, output).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Retrieves a contact. The exit status 4 needs a proof: a gateway can send a 404, too.
async fn retrieve(contacts: &Contacts, address: &str) -> Result<Contact, Failure> {
    let options = CallOptions::default();
    let contact = contacts.retrieve_surely(address, &options).await;
    contact.map_err(|error| Failure::from(error).about(address))
}

/// The options that choose contacts of a list.
#[derive(Args)]
pub(super) struct Filter {
    /// Only contacts in this segment
    #[arg(long, value_name = "ID", conflicts_with_all = ["properties", "text_properties"], value_parser = NonEmptyStringValueParser::new())]
    segment: Option<String>,
    /// Only contacts with this text in the address or a name
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// Only contacts with this property; if given several times, all must match
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<(String, PropertyValue)>,
    /// Only contacts with this property as text, also if it is written as a number
    #[arg(long = "text-property", value_name = "NAME=TEXT", value_parser = text_property)]
    text_properties: Vec<(String, PropertyValue)>,
}

impl Filter {
    pub(super) fn apply(&self, mut list: ListContacts) -> ListContacts {
        if let Some(segment) = &self.segment {
            list = list.segment(segment);
        }
        if let Some(text) = &self.query {
            list = list.query(text);
        }
        let properties = self.properties.iter().chain(&self.text_properties);
        let conditions =
            properties.map(|(name, value)| Condition::property(name).is(value.clone()));
        let conditions: Vec<_> = conditions.collect();
        if !conditions.is_empty() {
            list = list.rule(Rule::all(conditions));
        }
        list
    }
}

/// Reads an address. A call for `.` or `..` would reach another endpoint.
fn parse_address(text: &str) -> Result<String, String> {
    match is_path_segment(text.trim()) {
        true => Ok(text.to_owned()),
        false => Err("it is not an address".to_owned()),
    }
}

/// Parses `NAME=VALUE`. A number is a number, as in an import.
fn property(text: &str) -> Result<(String, PropertyValue), String> {
    let (name, value) = name_and_value(text)?;
    Ok((name.to_owned(), number_or_text(value)))
}

/// Parses `NAME=TEXT`. A number is text, too.
fn text_property(text: &str) -> Result<(String, PropertyValue), String> {
    let (name, value) = name_and_value(text)?;
    Ok((name.to_owned(), value.into()))
}

fn name_and_value(text: &str) -> Result<(&str, &str), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.ok_or_else(|| "write it as NAME=VALUE".to_owned())
}

fn answer(text: &str) -> Result<(String, bool), String> {
    let form = "write it as TOPIC=true or TOPIC=false";
    // A topic may have a `=` in its name.
    let (topic, answer) = text.rsplit_once('=').ok_or(form)?;
    let answer = answer.parse().map_err(|_| form)?;
    if topic.is_empty() {
        return Err(form.to_owned());
    }
    Ok((topic.to_owned(), answer))
}

/// Lists a page at a time, so that the first contacts are shown before the last ones are known.
async fn list(list: ListContacts, limit: Option<u64>, output: Output) -> Result<ExitCode, Failure> {
    const LARGEST_PAGE: u32 = 200;
    let mut left = limit.unwrap_or(u64::MAX);
    let page_size = u32::try_from(left).map_or(LARGEST_PAGE, |left| left.min(LARGEST_PAGE));
    let mut table = Table::new(&[
        "email",
        "first_name",
        "unsubscribed",
        "created_at",
        "properties",
    ]);
    let mut pages = list.limit(page_size).pages();
    let mut has_malformed = false;
    while left > 0
        && let Some(page) = poll_fn(|context| Pin::new(&mut pages).poll_next(context)).await
    {
        let page: Page = page?;
        for (_, error) in page.malformed() {
            has_malformed = true;
            output.note(format_args!("left out: {}", with_causes(&error)));
        }
        let mut lines = String::new();
        for contact in &page.data {
            if left == 0 {
                break;
            }
            left -= 1;
            if output.json {
                lines += &json_line(contact);
            } else {
                table.row(cells(contact));
            }
        }
        if !output.json {
            lines = table.take_text();
        }
        if !print(&lines)? {
            break;
        }
    }
    if !output.json {
        // If there was no page, the heading is still to be printed.
        print(&table.take_text())?;
    }
    Ok(if has_malformed {
        REFUSED.into()
    } else {
        ExitCode::SUCCESS
    })
}

fn cells(contact: &ContactSummary) -> [String; 5] {
    let properties = contact.properties.iter();
    let properties = properties.map(|(name, value)| format!("{name}={}", text(&json!(value))));
    [
        contact.email.clone(),
        contact.first_name.clone().unwrap_or_default(),
        contact.unsubscribed.to_string(),
        contact.created_at.to_string(),
        properties.collect::<Vec<_>>().join(", "),
    ]
}

/// A contact, and perhaps what happened to its mail.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    contact: Contact,
    /// Whether broadcasts reach the contact, and if not, why: a text for a person.
    broadcasts: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<History>,
}

impl Shown {
    fn in_full(&self) -> String {
        let mut members = members(&self.contact);
        members.push(("broadcasts".to_owned(), self.broadcasts.clone()));
        if let Some(history) = &self.history {
            for (name, last) in [
                ("bounced", history.bounced),
                ("clicked", history.clicked),
                ("complained", history.complained),
                ("delivered", history.delivered),
                ("opened", history.opened),
            ] {
                members.push((format!("history:{name}"), last.to_string()));
            }
        }
        by_line(members)
    }
}

/// Says whether broadcasts reach a contact, and if not, why.
fn broadcasts(contact: &Contact) -> String {
    let reachability = contact.reachability();
    match reachability.is_reachable() && !contact.topics.is_empty() {
        true => format!("{reachability}; each topic has its own answer"),
        false => reachability.to_string(),
    }
}

/// Returns a contact with one line for each member.
fn in_full(contact: &Contact) -> String {
    by_line(members(contact))
}

/// Returns the members of a contact. Properties and topics have the names that an export gives them.
fn members(contact: &Contact) -> Vec<(String, String)> {
    let mut members = vec![
        ("id".to_owned(), contact.id.clone()),
        ("email".to_owned(), contact.email.clone()),
        (
            "first_name".to_owned(),
            contact.first_name.clone().unwrap_or_default(),
        ),
        (
            "last_name".to_owned(),
            contact.last_name.clone().unwrap_or_default(),
        ),
        ("unsubscribed".to_owned(), contact.unsubscribed.to_string()),
    ];
    if let Some(reason) = &contact.unsubscribe_reason {
        members.push(("unsubscribe_reason".to_owned(), reason.to_string()));
    }
    members.push(("created_at".to_owned(), contact.created_at.to_string()));
    for (name, value) in &contact.properties {
        members.push((format!("property:{name}"), text(&json!(value))));
    }
    for (topic, answer) in &contact.topics {
        members.push((format!("topic:{topic}"), answer.to_string()));
    }
    for topic in contact.null_topics() {
        members.push((format!("topic:{topic}"), String::new()));
    }
    members
}

/// Returns names and values below each other. Unlike in a table, a long value is not cut.
pub(super) fn by_line(members: Vec<(String, String)>) -> String {
    let members: Vec<_> = members
        .into_iter()
        .map(|(name, value)| (printable(&name), printable(&value)))
        .collect();
    let width = widest(members.iter().map(|(name, _)| name.as_str())) + 2;
    let line = |(name, value): &(String, String)| match value.as_str() {
        "" => padded(name, width) + "-\n",
        value => format!("{}{value}\n", padded(name, width)),
    };
    members.iter().map(line).collect()
}

/// Prints what a call would change, and that nothing was sent.
fn dry_run(output: Output, change: &impl Serialize, text: &str) -> Result<(), Failure> {
    output.result(change, |_| format!("dry run: nothing was sent; {text}\n"))?;
    Ok(())
}

#[derive(Args)]
#[command(
    after_help = "Example:\n  audience contacts create ada@example.com --first-name Ada --property plan=pro"
)]
struct Create {
    /// Create a contact with this address
    #[arg(value_name = "ADDRESS", value_parser = parse_address)]
    address: String,
    /// Set the first name
    #[arg(long, value_name = "NAME")]
    first_name: Option<String>,
    /// Set the last name
    #[arg(long, value_name = "NAME")]
    last_name: Option<String>,
    #[command(flatten)]
    properties: SetProperties,
    /// Choose what happens if the address already exists; upsert replaces all properties
    #[arg(long, value_name = "CHOICE", value_parser = on_conflict(), default_value_t = OnConflict::Error)]
    on_conflict: OnConflict,
    /// Send nothing
    #[arg(long)]
    dry_run: bool,
}

/// The options that set properties.
#[derive(Args)]
struct SetProperties {
    /// Set a property; can be repeated. A number is stored as a number
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<(String, PropertyValue)>,
    /// Set a property to a text, also if it is written as a number, such as a phone number; can be repeated
    #[arg(long = "text-property", value_name = "NAME=TEXT", value_parser = text_property)]
    text_properties: Vec<(String, PropertyValue)>,
}

impl SetProperties {
    fn all(self) -> impl Iterator<Item = (String, PropertyValue)> {
        self.properties.into_iter().chain(self.text_properties)
    }
}

/// Reads what happens if an address already exists.
pub(super) fn on_conflict() -> impl TypedValueParser<Value = OnConflict> {
    let choices = [
        (OnConflict::Upsert, "Update the contact"),
        (OnConflict::Skip, "Leave the contact as it is"),
        (OnConflict::Error, "Refuse"),
    ];
    let choices = choices.map(|(choice, help)| PossibleValue::new(choice.as_str()).help(help));
    PossibleValuesParser::new(choices).try_map(|choice| choice.parse::<OnConflict>())
}

const OTHER_CONTACT: &str = "the contact in the response has another address, so the response most likely comes from a cache or a proxy";

impl Create {
    async fn run(self, contacts: &Contacts, output: Output) -> Result<(), Failure> {
        let mut contact = NewContact::new(&self.address).on_conflict(self.on_conflict);
        if let Some(name) = self.first_name {
            contact = contact.first_name(name);
        }
        if let Some(name) = self.last_name {
            contact = contact.last_name(name);
        }
        let properties: Properties = self.properties.all().collect();
        if !properties.is_empty() {
            contact = contact.properties(properties);
        }
        if self.dry_run {
            let text = format!("{} would be created", printable(&self.address));
            return dry_run(output, &contact, &text);
        }
        let created = contacts.create(contact).await;
        let about = |error| Failure::from(error).about(&self.address);
        let created = created.map_err(about)?;
        if are_different(&created.contact.email, &self.address) {
            return Err(about(Error::decode(OTHER_CONTACT)));
        }
        output.result(&created.contact, |contact| {
            let done = if created.is_new() {
                "was created"
            } else {
                "exists"
            };
            format!(
                "{} {done}: {}\n",
                printable(&contact.email),
                printable(&contact.id)
            )
        })?;
        Ok(())
    }
}

#[derive(Args)]
#[command(
    after_help = "Example:\n  audience contacts update ada@example.com --last-name Lovelace --remove-property trial"
)]
#[command(group = ArgGroup::new("changes").required(true).multiple(true).args(["first_name", "last_name", "properties", "text_properties", "remove_properties"]))]
struct Update {
    /// Change the contact with this address
    #[arg(value_name = "ADDRESS", value_parser = parse_address)]
    address: String,
    /// Set the first name; an empty one removes it
    #[arg(long, value_name = "NAME")]
    first_name: Option<String>,
    /// Set the last name; an empty one removes it
    #[arg(long, value_name = "NAME")]
    last_name: Option<String>,
    #[command(flatten)]
    properties: SetProperties,
    /// Remove a property; can be repeated
    #[arg(long = "remove-property", value_name = "NAME")]
    remove_properties: Vec<String>,
    /// Show the contact, and send no change
    #[arg(long)]
    dry_run: bool,
}

impl Update {
    async fn run(self, contacts: &Contacts, output: Output) -> Result<(), Failure> {
        let about = |error| Failure::from(error).about(&self.address);
        if self.dry_run {
            let contact = retrieve(contacts, &self.address).await?;
            let text = format!("{} would be changed", printable(&contact.email));
            return dry_run(output, &contact, &text);
        }
        let mut update = contacts.update(&self.address);
        if let Some(name) = self.first_name {
            update = update.first_name(name);
        }
        if let Some(name) = self.last_name {
            update = update.last_name(name);
        }
        for (name, value) in self.properties.all() {
            update = update.property(name, value);
        }
        for name in self.remove_properties {
            update = update.remove_property(name);
        }
        let contact = update.await.map_err(about)?;
        output.result(&contact, |contact| in_full(&contact.clone().into()))?;
        Ok(())
    }
}

#[derive(Args)]
#[command(after_help = CHANGE_ADDRESS_HELP)]
struct ChangeAddress {
    /// Change the address of the contact with this address
    #[arg(value_name = "OLD", value_parser = parse_address)]
    old: String,
    /// Give the contact this address
    #[arg(value_name = "NEW", value_parser = parse_address)]
    new: String,
    /// Show both contacts and what would be recorded, and send no change
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    confirmation: Confirmation,
}

const CHANGE_ADDRESS_HELP: &str = "\
It creates the contact of the new address with the names and properties of the old one, unless it exists, then records
every opt-out of the old contact for it, and unsubscribes the old address last. No opt-in is sent. If it fails or is
stopped, run it again. If the address comes from a table that you sync, change it only there.

Exit status: 0 if the address was changed, 4 if the old address is not a contact.

Example:
  audience contacts change-address ada@example.com ada@example.net";

impl ChangeAddress {
    async fn run(
        self,
        contacts: &Contacts,
        service: &Service,
        output: Output,
    ) -> Result<(), Failure> {
        let about = |error| Failure::from(error).about(&self.old);
        if self.dry_run || self.confirmation.asks(service) {
            let (old, new) = self.retrieve(contacts).await?;
            let plan = self.plan(&old, new.as_ref());
            if self.dry_run {
                return dry_run(output, &json!({"old": old, "new": new}), &plan.join("\n"));
            }
            plan.iter().for_each(|line| output.note(line));
        }
        self.confirmation.ask(|| Ok(Some(2)), service)?;
        let contact = contacts.change_address(&self.old, &self.new).await;
        let contact = contact.map_err(about)?;
        let old = normalized_address(&self.old);
        output.result(&contact, |contact| {
            let (old, new) = (printable(&old), printable(&contact.email));
            if old == new {
                return format!("{new} is the address already\n");
            }
            let mut text = format!("{old} was changed to {new}\n");
            if contact.unsubscribed {
                text += &format!(
                    "no broadcast reaches the new address: {}\n",
                    contact.reachability()
                );
                if contact.unsubscribe_reason == Some(UnsubscribeReason::Preferences) {
                    text += &format!("{}\n", mistyped(&old));
                }
            }
            text
        })?;
        Ok(())
    }

    /// Returns the old contact, and the contact of the new address if there is one.
    async fn retrieve(&self, contacts: &Contacts) -> Result<(Contact, Option<Contact>), Failure> {
        let old = retrieve(contacts, &self.old).await?;
        let new = contacts.find(&self.new).await;
        let new = new.map_err(|error| Failure::from(error).about(&self.new))?;
        Ok((old, new))
    }

    /// Says what the command would do, in lines.
    fn plan(&self, old: &Contact, new: Option<&Contact>) -> Vec<String> {
        let (from, to) = (printable(&old.email), normalized_address(&self.new));
        let to = printable(&to);
        if from == to {
            return vec![format!("{to} is the address already")];
        }
        let mut plan = vec![format!("{from} would be changed to {to}")];
        plan.push(match new {
            None => format!("{to} would be created with the names and properties of {from}"),
            Some(new) => {
                let names = [&new.first_name, &new.last_name].into_iter().flatten();
                let names: Vec<_> = names.map(|name| printable(name)).collect();
                format!(
                    "{to} is a contact already and keeps its names ({}) and properties; {}",
                    if names.is_empty() {
                        "none".to_owned()
                    } else {
                        names.join(" ")
                    },
                    new.reachability()
                )
            }
        });
        if old.unsubscribed && may_be_own(old) && new.is_some_and(|new| !new.is_opted_out()) {
            plan.push(format!(
                "{from} is opted out and {to} is not, so an earlier call may have changed the address: nothing would be changed"
            ));
            return plan;
        }
        let topics = old.topic_opt_outs().map(|topic| printable(topic));
        let everything = old.is_opted_out().then(|| "everything".to_owned());
        let opt_outs: Vec<_> = everything.into_iter().chain(topics).collect();
        plan.push(match &*opt_outs {
            [] => format!("no opt-out would be recorded for {to}"),
            all => format!("{to} would be opted out of: {}", all.join(", ")),
        });
        if !old.is_opted_out() {
            plan.push(format!("{from} would be opted out of everything"));
        } else if may_be_own(old) {
            plan.push(mistyped(&from));
        }
        plan
    }
}

fn mistyped(old: &str) -> String {
    format!(
        "if an earlier change of {old} went to a mistyped address, change it from there instead"
    )
}

/// Says which topics a contact gets that is not opted out of everything.
fn arriving(contact: &Contact) -> String {
    if !contact.shows_topics() {
        return "not known, because the response does not show them".to_owned();
    }
    let topics = contact.topics.iter().filter(|(_, answer)| **answer);
    let topics = topics.map(|(topic, _)| printable(topic));
    let not_known = contact.null_topics();
    let not_known = not_known.map(|topic| format!("{} (not known)", printable(topic)));
    let topics: Vec<_> = topics.chain(not_known).collect();
    match &*topics {
        [] => "none, because the contact is opted out of each".to_owned(),
        topics => topics.join(", "),
    }
}

#[derive(Args)]
#[command(after_help = SET_TOPICS_HELP)]
struct SetTopics {
    /// Set the topics of the contact with this address
    #[arg(value_name = "ADDRESS", value_parser = parse_address)]
    address: String,
    /// Topics and their answers
    #[arg(value_name = "TOPIC=BOOL", value_parser = answer, required = true)]
    answers: Vec<(String, bool)>,
    /// Send nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    confirmation: OptInConfirmation,
}

const SET_TOPICS_HELP: &str = "\
An answer of true is an opt-in, which is right only after the person asked for it. So the command asks before it sends
one. After a spam report, the service refuses it.

Example:
  audience contacts set-topics ada@example.com news=true offers=false";

impl SetTopics {
    async fn run(
        self,
        contacts: &Contacts,
        service: &Service,
        output: Output,
    ) -> Result<(), Failure> {
        let (address, answers) = (&self.address, self.answers);
        let opt_ins = answers.iter().filter(|(_, answer)| *answer);
        let opt_ins: Vec<_> = opt_ins.map(|(topic, _)| topic.as_str()).collect();
        let opt_ins = opt_ins.join(", ");
        let failed = |error: TopicsError| {
            let recorded: Vec<_> = error.recorded().keys().cloned().collect();
            let failure = Failure::from(&error).about(address);
            match recorded.is_empty() {
                true => failure,
                false => failure.note(&format!("recorded before: {}", recorded.join(", "))),
            }
        };
        let set_topics = contacts.set_topics(address, answers.clone());
        set_topics
            .check()
            .map_err(|error| Failure::usage(error.error().explanation()).about(address))?;
        if self.dry_run {
            let topics: BTreeMap<_, _> = answers.into_iter().collect();
            let text = format!(
                "{} topics of {} would be set",
                topics.len(),
                printable(address)
            );
            let change = json!({"email": normalized_address(address), "topics": topics});
            return dry_run(output, &change, &text);
        }
        if !opt_ins.is_empty() {
            self.confirmation.ask(address, Some(&opt_ins), service)?;
        }
        let recorded = set_topics.await.map_err(failed)?;
        output.result(&recorded.contact, in_full)?;
        Ok(())
    }
}

#[derive(Args)]
#[command(after_help = SUBSCRIBE_HELP)]
struct Subscribe {
    /// Subscribe the contact with this address
    #[arg(value_name = "ADDRESS", value_parser = parse_address)]
    address: String,
    /// Record an opt-in to this topic only; an opt-out from everything stays
    #[arg(long, value_name = "TOPIC", value_parser = NonEmptyStringValueParser::new())]
    topic: Option<String>,
    /// Send nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    confirmation: OptInConfirmation,
}

const SUBSCRIBE_HELP: &str = "\
An opt-in is right only after the person asked for it, so the command asks you. Without --topic, it ends the opt-out from
everything. After a spam report, the service refuses every opt-in, and no call ends that.

Example:
  audience contacts subscribe ada@example.com --topic news";

impl Subscribe {
    async fn run(
        self,
        contacts: &Contacts,
        service: &Service,
        output: Output,
    ) -> Result<(), Failure> {
        let (address, topic) = (&self.address, self.topic.as_deref());
        let to_topic = topic.map_or_else(String::new, |topic| format!(" to {}", printable(topic)));
        if self.dry_run {
            let email = normalized_address(address);
            let text = format!("{} would be subscribed{to_topic}", printable(&email));
            return dry_run(output, &json!({"email": email, "topic": topic}), &text);
        }
        if topic.is_none() && self.confirmation.asks(service) {
            let contact = retrieve(contacts, address).await?;
            output.note(format_args!(
                "topics that would arrive then: {}",
                arriving(&contact)
            ));
        }
        self.confirmation.ask(address, topic, service)?;
        let mut call = contacts.subscribe(address);
        if let Some(topic) = topic {
            call = call.topic(topic);
        }
        let contact = call
            .await
            .map_err(|error| Failure::from(error).about(address))?;
        if topic.is_none() && contact.unsubscribed {
            let message = "the service accepted the request, but the contact is still opted out of everything";
            return Err(Failure::failed(message).about(address));
        }
        let topics = match topic.is_none() && !contact.shows_topics() && !output.json {
            // The opt-in is recorded. If the contact cannot be retrieved, its topics are not known.
            true => retrieve(contacts, address)
                .await
                .map(|contact| arriving(&contact)),
            false => Ok(arriving(&contact)),
        };
        output.result(&contact, |contact| {
            let mut text = format!("{} was subscribed{to_topic}\n", printable(&contact.email));
            if contact.unsubscribed {
                text += "the opt-out from everything stays, so no broadcast reaches this contact\n";
            } else if topic.is_none() {
                let topics = topics.unwrap_or_else(|_| arriving(contact));
                text += &format!("topics that arrive now: {topics}\n");
            }
            text
        })?;
        Ok(())
    }
}

#[derive(Args)]
#[command(after_help = ERASE_HELP)]
struct Erase {
    /// Erase the person with this address
    #[arg(value_name = "ADDRESS", value_parser = parse_address)]
    address: String,
    /// Also erase the other addresses that a sync has sent for the row --key, and remove the row from this state file
    #[arg(long, value_name = "FILE", requires = "key")]
    state: Option<PathBuf>,
    /// Name the person's row by its key; the last sync must have found it deleted or missing
    #[arg(long, value_name = "KEY", requires = "state", value_parser = NonEmptyStringValueParser::new())]
    key: Option<String>,
    /// Show the contact, and erase nothing; it does not look at the row --key
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

const ERASE_HELP: &str = "\
The interface does not show how a contact is deleted, so the command sends DELETE /contacts/ADDRESS. If the service does
not delete by this request, the command opts the contact out and removes its names and properties: then ask the support of
the service to delete the address. The opt-outs are lost with a deleted contact, so an import of the address could
subscribe it again. A contact is kept if another row of the sync has its address. A row that the state file does not have
is no error.

The command prints a line for each address. With --json, it is an object with `email` and `erasure`, which is deleted,
emptied, no_contact or kept.

Exit status: 0 if the person was deleted, 3 if a contact was only emptied, or kept, 4 if there is no contact.

Example:
  audience contacts erase ada@example.com";

impl Erase {
    async fn run(
        self,
        contacts: &Contacts,
        service: &Service,
        output: Output,
    ) -> Result<ExitCode, Failure> {
        // Before the question, so that a mistyped path is said first.
        let state = self.state.as_deref().map(open_state).transpose()?;
        let mut what = normalized_address(&self.address);
        if let Some(key) = &self.key {
            what += &format!(" and what a sync has sent for the row {key}");
        }
        if self.dry_run {
            let contact = retrieve(contacts, &self.address).await?;
            let text = format!("{} would be erased", printable(&what));
            dry_run(output, &contact, &text)?;
            return Ok(ExitCode::SUCCESS);
        }
        if !self.yes && service.mock.is_none() {
            let change = format!("erase {what} at {}", service.name());
            ask(
                &format!("{change}? The opt-outs are lost, too."),
                &format!("this would {change}; pass --yes, because there is no terminal to ask on"),
            )?;
        }
        let erased = self.erase(contacts, state).await;
        let erased = erased.map_err(|error| Failure::from(error).about(&self.address))?;
        for (email, erasure) in &erased {
            output.result(&json!({"email": email, "erasure": erasure}), |_| {
                format!("{}: {erasure}\n", printable(email))
            })?;
        }
        let any = |wanted| erased.iter().any(|(_, erasure)| *erasure == wanted);
        Ok(if any(Erasure::Emptied) || any(Erasure::Kept) {
            REFUSED.into()
        } else if any(Erasure::Deleted) {
            ExitCode::SUCCESS
        } else {
            NOT_FOUND.into()
        })
    }

    /// Returns each address, and what was done with it.
    async fn erase(
        &self,
        contacts: &Contacts,
        state: Option<SyncState>,
    ) -> Result<Vec<(String, Erasure)>, Error> {
        let (Some(state), Some(key)) = (state, &self.key) else {
            let erasure = contacts.erase(&self.address).await?;
            return Ok(vec![(normalized_address(&self.address), erasure)]);
        };
        let mut erased = Vec::new();
        let row = (key.clone(), &self.address);
        for (_, addresses) in contacts.erase_rows(state, [row]).await? {
            erased.extend(addresses?);
        }
        Ok(erased)
    }
}

fn open_state(path: &Path) -> Result<SyncState, Failure> {
    SyncState::open_existing(path).map_err(|error| Failure::causes(&error))
}

#[derive(Args)]
#[command(after_help = "\
Without --topic, it is an opt-out from everything: no broadcast reaches the contact, whatever its topics.
A contact that is unsubscribed already stays as it is, unless --reason names a reason. The reason complaint stays.

Exit status: 0 if all are unsubscribed, 3 if only some are, 4 if none of them is a contact or the topic does not exist.

Example:
  audience contacts unsubscribe --file addresses.txt --yes")]
struct Unsubscribe {
    /// Unsubscribe the contacts with these addresses
    #[arg(value_name = "ADDRESS", required_unless_present = "file", value_parser = parse_address)]
    addresses: Vec<String>,
    /// Read more addresses from this file, one per line; - reads standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Unsubscribe from this topic only
    #[arg(long, value_name = "TOPIC", conflicts_with = "reason", value_parser = NonEmptyStringValueParser::new())]
    topic: Option<String>,
    /// Record this reason [default: manual]
    #[arg(long, value_name = "REASON", value_enum)]
    reason: Option<Reason>,
    /// Send nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    confirmation: Confirmation,
}

#[derive(Clone, Copy, ValueEnum)]
enum Reason {
    /// The sender decided
    Manual,
    /// The contact decided, on a preference page
    Preferences,
}

/// How many opt-outs are sent concurrently.
const CONCURRENCY: usize = 8;

impl Unsubscribe {
    async fn run(
        self,
        service: &Service,
        connection: &Connection,
        output: Output,
    ) -> Result<ExitCode, Failure> {
        let addresses = self.addresses()?;
        if self.dry_run {
            let topic = self.topic.as_deref();
            let from_topic =
                topic.map_or_else(String::new, |topic| format!(" from {}", printable(topic)));
            for address in &addresses {
                let email = normalized_address(address);
                let text = format!("{} would be unsubscribed{from_topic}", printable(&email));
                dry_run(output, &json!({"email": email, "topic": topic}), &text)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        self.confirmation
            .ask(|| Ok(Some(addresses.len() as u64)), service)?;

        let stop = tokio::spawn(interrupt_from_now(None, output));
        let mut done = 0;
        let mut refused = Vec::new();
        let mut failure = None;
        let mut in_flight = VecDeque::new();
        let mut waiting = addresses.into_iter();
        loop {
            while failure.is_none()
                && !stop.is_finished()
                && in_flight.len() < CONCURRENCY
                && let Some(address) = waiting.next()
            {
                let call = self.call(&connection.contacts, &address);
                in_flight.push_back((address, tokio::spawn(call)));
            }
            let Some((address, call)) = in_flight.pop_front() else {
                break;
            };
            match call.await.map_err(|error| Failure::causes(&error))? {
                Ok((contact, is_sent)) => {
                    done += 1;
                    let printed = output.result(&contact, |contact| {
                        let email = printable(&contact.email);
                        match (is_sent, &contact.unsubscribe_reason) {
                            (true, _) => format!("{email} was unsubscribed\n"),
                            (false, None) => format!("{email} was unsubscribed already\n"),
                            (false, Some(reason)) => {
                                format!(
                                    "{email} was unsubscribed already: {}\n",
                                    printable(reason.as_str())
                                )
                            }
                        }
                    });
                    // No other line could be printed either. The calls in flight are finished.
                    if let Err(problem) = printed {
                        failure.get_or_insert(problem);
                    }
                }
                Err(error) => {
                    // Every other address would fail in the same way. The calls in flight still get their lines.
                    let is_about_address = concerns_only_its_address(&error);
                    let problem = Failure::from(error).about(address);
                    if is_about_address || failure.is_some() {
                        refused.push(problem.exit_code());
                        output.failure(&problem);
                    } else {
                        failure = Some(problem);
                    }
                }
            }
        }
        let not_sent = waiting.len();
        refused.dedup();
        match (failure, &*refused) {
            (Some(failure), _) if not_sent > 0 => {
                Err(failure.note(&format!("{not_sent} more addresses were not unsubscribed")))
            }
            (Some(failure), _) => Err(failure),
            (None, _) if not_sent > 0 => {
                let left = format!("stopped: {not_sent} addresses were not unsubscribed");
                Err(Failure::interrupted(left).note("it is safe to start again with all of them"))
            }
            (None, []) => Ok(ExitCode::SUCCESS),
            (None, _) if done > 0 => Ok(REFUSED.into()),
            (None, [status]) => Ok((*status).into()),
            (None, _) => Ok(ExitCode::FAILURE),
        }
    }

    /// Returns the contact, and whether the opt-out was sent: a contact that is left as it is was opted out already.
    fn call(
        &self,
        contacts: &Contacts,
        address: &str,
    ) -> impl Future<Output = Result<(Contact, bool), Error>> + use<> {
        let mut call = contacts.unsubscribe(address);
        if let Some(topic) = &self.topic {
            call = call.topic(topic);
        }
        // Another opt-out would replace the reason. After a spam report, that could lift the lock of section 3.2.
        let call = match self.reason {
            None => call.unless_opted_out(),
            Some(Reason::Manual) => call.reason(OptOutReason::Manual).unless_complaint_locked(),
            Some(Reason::Preferences) => {
                let call = call.reason(OptOutReason::Preferences);
                call.unless_complaint_locked()
            }
        };
        call.record()
    }

    fn addresses(&self) -> Result<Vec<String>, Failure> {
        let mut addresses = self.addresses.clone();
        if let Some(file) = &self.file {
            let text = read(file).map_err(|error| {
                Failure::usage(format!("could not read {}: {error}", file.display()))
            })?;
            let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
            let lines = text.lines().map(str::trim);
            addresses.extend(lines.filter(|line| !line.is_empty()).map(str::to_owned));
            if addresses.is_empty() {
                let file = match file.as_os_str() == "-" {
                    true => "the standard input".to_owned(),
                    false => file.display().to_string(),
                };
                return Err(Failure::usage(format!("there is no address in {file}")));
            }
        }
        Ok(addresses)
    }
}

/// Returns whether the next address may succeed although this one failed.
fn concerns_only_its_address(error: &Error) -> bool {
    let is_refused = error.is_not_found() || error.is_validation_error();
    let is_unusable = error.kind() == ErrorKind::Input;
    // The last: the contact does not show a change that was accepted.
    let is_unread = error.is_malformed_contact()
        || error.outcome() == Outcome::Applied
        || error.kind() == ErrorKind::Decode && error.is_retryable();
    (is_refused || is_unusable || is_unread) && error.missing() != Some(Missing::Topic)
}

fn read(file: &Path) -> std::io::Result<String> {
    if file.as_os_str() != "-" {
        return std::fs::read_to_string(file);
    }
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text)?;
    Ok(text)
}
