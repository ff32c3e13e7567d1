//! What rows a CSV file becomes.

use std::io::{self, Read};

use audience::ErrorKind;
use audience::contacts::{NewContact, OnConflict, OptOutReason};
use audience::import::{Column, CsvInput, CsvRows, ImportRow, OptOut};
use audience::mock::MockServer;
use serde_json::{Value, json};

use super::csv_program::Folder;

fn rows(text: impl AsRef<[u8]>) -> Vec<ImportRow> {
    CsvRows::new(io::Cursor::new(text.as_ref().to_vec()))
        .unwrap()
        .collect()
}

fn columns(text: &str) -> Vec<String> {
    shown(&CsvInput::new(io::Cursor::new(text.to_owned())).unwrap())
}

fn shown(input: &CsvInput) -> Vec<String> {
    let columns = input.columns();
    columns
        .map(|(name, column)| format!("{name} is {column}"))
        .collect()
}

fn json_of(row: &ImportRow) -> Value {
    serde_json::to_value(row.contact().unwrap()).unwrap()
}

fn refusal(text: impl AsRef<[u8]>) -> String {
    let result = CsvRows::new(io::Cursor::new(text.as_ref().to_vec()));
    let error = result.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input, "{error}");
    error.to_string()
}

#[test]
fn a_row_has_the_line_that_an_editor_shows() {
    let text = "email,note\r\n\r\na@x.io,\"two\r\nlines\"\r\n,\r\nb@x.io,\"\"\"quoted\"\"\"\r\n\"c@x.io\",\"\n\n\"\nd@x.io,";

    let rows = rows(text);

    let lines: Vec<_> = rows.iter().map(|row| row.line_number().unwrap()).collect();
    assert_eq!(lines, [3, 6, 7, 10]);
    assert_eq!(json_of(&rows[0])["properties"]["note"], "two\r\nlines");
    assert_eq!(json_of(&rows[1])["properties"]["note"], "\"quoted\"");
    assert_eq!(json_of(&rows[3]), json!({"email": "d@x.io"}));
}

#[test]
fn a_byte_order_mark_and_any_common_delimiter_are_recognized() {
    for (text, delimiter) in [
        ("\u{feff}email,plan\na@x.io,pro\n", ','),
        ("email;plan\na@x.io;pro\n", ';'),
        ("email\tplan\r\na@x.io\tpro", '\t'),
        ("email|plan\ra@x.io|pro\r", '|'),
        ("sep=;\r\nemail;plan\r\na@x.io;pro\r\n", ';'),
        ("\u{feff}sep=*\nemail*plan\na@x.io*pro\n", '*'),
        ("\"Email, primary\";email;plan\n;a@x.io;pro\n", ';'),
    ] {
        let input = CsvInput::new(io::Cursor::new(text)).unwrap();

        assert_eq!(input.delimiter_char(), delimiter);
        let row = input.rows().unwrap().next().unwrap();
        assert_eq!(
            row.contact(),
            Some(&NewContact::new("a@x.io").property("plan", "pro"))
        );
    }
}

#[test]
fn the_delimiter_can_be_set_and_the_columns_are_guessed_anew() {
    let text = "email*given name\na@x.io*Ada\n";

    let input = CsvInput::new(text.as_bytes())
        .unwrap()
        .delimiter('*')
        .unwrap();

    assert_eq!(
        input.columns().nth(1),
        Some(("given name", &Column::FirstName))
    );
    let row = input.rows().unwrap().next().unwrap();
    assert_eq!(
        row.contact(),
        Some(&NewContact::new("a@x.io").first_name("Ada"))
    );
    for unusable in ['é', '"', '\n'] {
        let error = CsvInput::new(text.as_bytes())
            .unwrap()
            .delimiter(unusable)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
    }
}

#[test]
fn columns_are_guessed_and_can_be_changed_before_a_row_is_read() {
    let text = "E-Mail,Given_name,Surname,Plan,Opted out,topic:news,Country,Email address\n";
    assert_eq!(
        columns(text),
        [
            "E-Mail is email",
            "Given_name is first_name",
            "Surname is last_name",
            "Plan is property:Plan",
            "Opted out is unsubscribed",
            "topic:news is topic:news",
            "Country is property:Country",
            "Email address is property:Email address",
        ]
    );

    let text = "Kunde,Mail,Land,Plan\n7,a@x.io,DE,pro\n";
    let input = CsvInput::new(text.as_bytes()).unwrap();
    let input = input.map("Kunde", Column::Key).unwrap();
    let input = input
        .map("Land", "property:country".parse().unwrap())
        .unwrap();
    let input = input
        .map("Plan", Column::Ignored)
        .unwrap()
        .on_conflict(OnConflict::Skip);

    let row = input.rows().unwrap().next().unwrap();
    assert_eq!(row.key_text(), Some("7"));
    let expected =
        json!({"email": "a@x.io", "properties": {"country": "DE"}, "on_conflict": "skip"});
    assert_eq!(json_of(&row), expected);
}

#[test]
fn cells_are_trimmed_empty_ones_are_not_sent_and_only_exact_numbers_are_numbers() {
    let text = "email,first name,seats,postcode,phone,rate,number,on_conflict\n\
        \u{20}a@x.io , Ada,3,01067,+49 351,0.5,123456789012345678901234,error\n\
        b@x.io,,,,,,,  \n";

    let rows = rows(text);

    let properties = json!({"seats": 3, "postcode": "01067", "phone": "+49 351", "rate": 0.5,
        "number": "123456789012345678901234"});
    assert_eq!(
        json_of(&rows[0]),
        json!({"email": "a@x.io", "first_name": "Ada", "properties": properties, "on_conflict": "error"})
    );
    assert_eq!(json_of(&rows[1]), json!({"email": "b@x.io"}));
}

#[test]
fn a_cell_sets_what_becomes_of_an_address_that_exists() {
    let rows = rows("email,on_conflict\na@x.io,Upsert\nb@x.io,SKIP\nc@x.io,keep\n");

    assert_eq!(json_of(&rows[0])["on_conflict"], "upsert");
    assert_eq!(json_of(&rows[1])["on_conflict"], "skip");
    assert!(rows[2].contact().is_none());
}

#[test]
fn rows_are_counted_without_converting_them_and_an_error_of_the_file_is_the_last_one() {
    let text = "email\na@x.io\n\nb@x.io\nc@x.io\n";
    let long = format!("email\n{}", "a@x.io\n".repeat(20_000));
    let cut_off = || CsvRows::new(io::Cursor::new(long.clone()).chain(Broken)).unwrap();

    assert_eq!(CsvRows::new(text.as_bytes()).unwrap().count(), 3);
    let read: Vec<_> = cut_off().collect();
    assert_eq!(cut_off().count(), read.len());
    assert_eq!(
        read.last().unwrap().line_number(),
        Some(1 + read.len() as u64)
    );
    let lines: Vec<_> = rows(text).iter().map(ImportRow::line_number).collect();
    assert_eq!(lines, [Some(2), Some(4), Some(5)]);
}

#[test]
fn consent_is_read_as_opt_outs_and_never_as_an_opt_in() {
    let text = "email,subscribed,unsubscribe_reason,topic:news,topic:offers\n\
        a@x.io,yes,,yes,yes\n\
        b@x.io,no,,,\n\
        c@x.io,unsubscribed,preferences,no,FALSE\n\
        d@x.io,yes,,0,1\n";

    let rows = rows(text);

    let opt_outs: Vec<_> = rows.iter().map(ImportRow::opt_outs).collect();
    let news = OptOut::Topic("news".to_owned());
    assert_eq!(opt_outs[0], []);
    assert_eq!(opt_outs[1], [OptOut::Everything(OptOutReason::Manual)]);
    let preferences = OptOut::Everything(OptOutReason::Preferences);
    let offers = OptOut::Topic("offers".to_owned());
    assert_eq!(opt_outs[2], [preferences, news.clone(), offers]);
    assert_eq!(opt_outs[3], [news]);
}

#[test]
fn an_empty_state_is_unclear_unless_another_column_opts_the_contact_out_of_everything() {
    let unclear = "column \"OPT_IN\": the cell is empty";
    let everything = OptOut::Everything(OptOutReason::Manual);
    let blocked = CsvInput::new("EMAIL,OPT_IN\na@x.io,\n".as_bytes()).unwrap();

    let blocked: Vec<_> = blocked.opt_out_all().rows().unwrap().collect();
    let rows =
        rows("EMAIL,OPT_IN,unsubscribed,topic:news\na@x.io,,yes,\nb@x.io,,no,\nc@x.io,,,no\n");

    assert_eq!(blocked[0].opt_outs(), std::slice::from_ref(&everything));
    assert_eq!(rows[0].opt_outs(), [everything]);
    for row in &rows[1..] {
        let reason = row.unreadable_reason().unwrap();
        assert!(reason.starts_with(unclear), "{reason}");
    }
}

#[test]
fn a_state_that_is_not_understood_is_unclear_even_if_another_column_opts_the_contact_out() {
    let rows = rows("EMAIL,OPT_IN,unsubscribed\na@x.io,maybe,yes\n");

    let reason = rows[0].unreadable_reason().unwrap();
    let unclear = "column \"OPT_IN\": the cell says neither yes nor no";
    assert!(reason.starts_with(unclear), "{reason}");
}

#[test]
fn a_no_to_a_topic_is_an_opt_out_however_the_column_is_spelled() {
    for name in ["topic:news", "Topic:news", "Topic: news", " TOPIC : news "] {
        let rows = rows(format!("email,{name}\na@x.io,no\n"));

        let news = OptOut::Topic("news".to_owned());
        assert_eq!(rows[0].opt_outs(), [news], "{name}");
    }
}

#[test]
fn an_opt_out_that_is_active_is_not_read_as_subscribed() {
    let rows = rows("email,Opt-out\na@x.io,Active\nb@x.io,subscribed\n");

    let reason = rows[0].unreadable_reason().unwrap();
    assert!(reason.contains("neither yes nor no"), "{reason}");
    assert_eq!(rows[1].opt_outs(), []);
}

#[test]
fn a_row_that_cannot_be_read_keeps_its_line_and_cells_and_the_next_one_is_read() {
    let text = b"email,plan,unsubscribed\n\
        a@x.io,pro\n\
        b@x.io,pro,no,more\n\
        ,pro,no\n\
        d\xff@x.io,pro,no\n\
        e@x.io,pro,maybe\n\
        g@x.io,pro,no\n";

    let rows = rows(text);

    let reasons: Vec<_> = rows.iter().map(ImportRow::unreadable_reason).collect();
    for (reason, expected) in reasons.iter().zip([
        "2 cells, but the file has 3 columns",
        "4 cells, but the file has 3 columns",
        "no address",
        "not UTF-8",
        "column \"unsubscribed\": the cell says neither yes nor no",
    ]) {
        assert!(reason.unwrap().contains(expected), "{reason:?}: {expected}");
    }
    let lines: Vec<_> = rows.iter().map(|row| row.line_number().unwrap()).collect();
    assert_eq!(lines, [2, 3, 4, 5, 6, 7]);
    assert_eq!(rows[0].input_cells().unwrap(), ["a@x.io", "pro", "?"]);
    assert_eq!(
        rows[3].input_cells().unwrap(),
        ["d\u{fffd}@x.io", "pro", "no"]
    );
    assert_eq!(
        rows[5].contact(),
        Some(&NewContact::new("g@x.io").property("plan", "pro"))
    );
}

#[tokio::test]
async fn a_quote_that_is_never_closed_is_the_last_reject_and_the_import_says_that_rows_are_missing()
{
    let server = MockServer::start().await;
    let contacts = server.client().contacts();
    for last_column in ["plan", "note"] {
        let text = format!("email,{last_column}\na@x.io,pro\nf@x.io,\"pro\ng@x.io,pro\n");

        let error = contacts.import(rows(text)).await.unwrap_err();

        assert_eq!((error.report().total(), error.report().refused()), (2, 1));
        let text = error.error().to_string();
        let expected = "line 3: a quote in this row is not closed, so";
        assert!(text.starts_with(expected), "{text}");
    }
    assert!(server.contact("a@x.io").is_some() && server.contact_count() == 1);

    let rows = rows("email,note\nf@x.io,\"pro\ng@x.io,pro\n");
    assert_eq!((rows.len(), rows[0].line_number()), (1, Some(2)));
    assert!(rows[0].unreadable_reason().unwrap().contains("quote"));
}

#[test]
fn a_row_with_text_after_a_closing_quote_is_unreadable_because_other_rows_may_be_inside_it() {
    let text = "email,name,unsubscribed\na@x.io,\"Ann,no\nb@x.io,\"Bob\",yes\nc@x.io,Carl,yes\n\
        d@x.io,\"Dan\" Doe,no\ne@x.io,\"Eve\" ,no\nf@x.io,\"say \"\"f\"\"\",yes\ng@x.io,5\" disk,yes\n";

    let rows = rows(text);

    let lines: Vec<_> = rows.iter().map(|row| row.line_number().unwrap()).collect();
    assert_eq!(lines, [2, 4, 5, 6, 7, 8]);
    for (row, may_have_others) in [(0, true), (2, false), (3, false)] {
        let reason = rows[row].unreadable_reason().unwrap();
        let expected = "text after a closing quote; an earlier quote may not be closed";
        assert!(reason.starts_with(expected), "{reason}");
        assert_eq!(reason.contains("other rows"), may_have_others, "{reason}");
        // In the rejects, they would be the cells of a row that can be read.
        assert_eq!(rows[row].input_cells(), Some(&[][..]));
    }
    for (row, name) in [(1, "Carl"), (4, "say \"f\""), (5, "5\" disk")] {
        assert_eq!(json_of(&rows[row])["properties"]["name"], name);
        assert_eq!(rows[row].opt_outs().len(), 1);
    }
}

#[test]
fn a_row_far_down_with_text_after_a_closing_quote_says_whether_other_rows_may_be_inside_it() {
    let good = "a@x.io,Ann\n".repeat(100);
    for (row, may_have_others) in [
        ("b@x.io,\"Bob\"by\n", false),
        ("b@x.io,\"Bob\nc@x.io,\"Carl\"\n", true),
    ] {
        let rows = rows(format!("email,name\n{good}{row}"));

        let reason = rows.last().unwrap().unreadable_reason().unwrap();
        assert_eq!(reason.contains("other rows"), may_have_others, "{reason}");
    }
}

#[test]
fn a_header_with_text_after_a_closing_quote_is_refused_unless_another_delimiter_reads_it() {
    let error = refusal("email,\"name,unsubscribed\na@x.io,\"Bob\",yes\n");
    assert!(error.starts_with("the header is invalid: text after a closing quote"));
    // With the semicolon, it would be a valid header of two columns, and none of them the address.
    let error = refusal("email,\"first;last\"name\na@x.io,Ann\n");
    assert!(error.starts_with("the header is invalid: text after a closing quote"));

    let input = CsvInput::new("\"email\"*\"plan\"\na@x.io*pro\n".as_bytes()).unwrap();
    assert_eq!(input.delimiter('*').unwrap().rows().unwrap().count(), 1);
}

#[test]
fn a_row_of_more_than_1_mib_is_unreadable_and_the_next_one_is_read() {
    let text = format!("email,note\na@x.io,{}\nb@x.io,x\n", "z".repeat(1 << 21));

    let rows = rows(text);

    assert!(rows[0].unreadable_reason().unwrap().contains("1 MiB"));
    assert_eq!(
        rows[1].contact(),
        Some(&NewContact::new("b@x.io").property("note", "x"))
    );
}

#[test]
fn a_file_that_is_not_utf8_text_is_refused_and_the_error_says_how_to_save_it() {
    let utf16: Vec<u8> = "\u{feff}email\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert!(refusal(utf16).contains("UTF-16"));
    assert!(refusal(b"PK\x03\x04\x14\x00\x00").contains("save it as CSV"));
    assert!(refusal(b"email,caf\xe9\n").contains("not UTF-8"));
    assert!(refusal("\u{feff}\r\n\n").contains("empty"));
}

#[test]
fn a_file_without_an_address_column_is_refused_and_the_error_names_no_address() {
    assert!(refusal("Adresse,Vorname\n").contains("\"Adresse\", \"Vorname\""));

    let error = refusal("ada@example.com,Ada\n");
    assert!(error.contains("names the columns"), "{error}");
    assert!(!error.contains("ada@example.com"), "{error}");
}

#[test]
fn a_column_that_may_say_who_opted_out_must_be_mapped() {
    let text = "email,Status\na@x.io,unsubscribed\n";
    assert!(refusal(text).contains("\"Status\""));

    let input = CsvInput::new(text.as_bytes())
        .unwrap()
        .map("Status", Column::Subscribed)
        .unwrap();
    let row = input.rows().unwrap().next().unwrap();
    assert_eq!(row.opt_outs(), [OptOut::Everything(OptOutReason::Manual)]);

    assert!(refusal("email,topics,Topics\n").contains("who opted out: [\"Topics\"]"));

    let property = Column::Property("Status".to_owned());
    let input = CsvInput::new(text.as_bytes())
        .unwrap()
        .map("Status", property)
        .unwrap();
    assert_eq!(input.rows().unwrap().count(), 1);
}

#[test]
fn the_columns_of_an_export_need_no_mapping() {
    let text = "id,email,first_name,last_name,unsubscribed,unsubscribe_reason,created_at,topic:news,topics,\
        plan,property:Status,properties\n\
        c_1,a@x.io,Ada,King,true,complaint,2020-09-13T12:26:42Z,false,\"{\"\"a\"\":true,\"\"b\"\":false}\",\
        pro,new,\"{\"\"seats\"\":\"\"3\"\"}\"\n";

    let rows = rows(text);

    let expected = json!({"email": "a@x.io", "first_name": "Ada", "last_name": "King",
        "properties": {"plan": "pro", "Status": "new", "seats": "3"}});
    assert_eq!(json_of(&rows[0]), expected);
    let opt_outs = [
        OptOut::Everything(OptOutReason::Manual),
        OptOut::Topic("b".to_owned()),
        OptOut::Topic("news".to_owned()),
    ];
    assert_eq!(rows[0].opt_outs(), opt_outs);
}

#[test]
fn a_delimiter_that_finds_the_address_is_preferred_to_one_that_gives_more_columns() {
    let text = "email,\"a;b;c\"\na@x.io,x\n";

    let rows = rows(text);

    let expected = NewContact::new("a@x.io").property("a;b;c", "x");
    assert_eq!(rows[0].contact(), Some(&expected));
}

#[test]
fn a_header_with_very_many_columns_is_read_in_no_time() {
    let names: Vec<_> = (0..100_000).map(|number| format!("p{number}")).collect();
    let text = format!(
        "email,{}\na@x.io{}\n",
        names.join(","),
        ",1".repeat(100_000)
    );

    let rows = rows(text);

    let properties = json_of(&rows[0])["properties"].clone();
    assert_eq!(properties.as_object().unwrap().len(), 100_000);
}

#[test]
fn one_member_for_two_columns_is_refused() {
    let input = CsvInput::new("email,Mail 2\n".as_bytes()).unwrap();
    let error = input
        .map("Mail 2", Column::Email)
        .unwrap()
        .rows()
        .unwrap_err();
    assert!(error.to_string().contains("`email`"), "{error}");
    let same_name = refusal("email,plan,plan\n");
    assert!(same_name.contains("`property:plan`") && same_name.contains("rename"));
    assert!(refusal("email,email\n").contains("`email`; rename"));

    let error = CsvInput::new("email\n".as_bytes())
        .unwrap()
        .map("plan", Column::Key)
        .unwrap_err();
    assert!(error.to_string().contains("no column \"plan\""), "{error}");
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk is gone"))
    }
}

#[tokio::test]
async fn an_import_of_a_file_that_cannot_be_read_to_its_end_is_an_error_after_the_rows_before_it() {
    let server = MockServer::start().await;
    let contacts = server.client().contacts();
    let addresses = (0..20_000).map(|number| format!("{number}@x.io\n"));
    let text = format!("email\n{}", addresses.collect::<String>());
    let rows = CsvRows::new(io::Cursor::new(text).chain(Broken)).unwrap();

    let error = contacts.import(rows).await.unwrap_err();

    assert_eq!(error.report().refused(), 1);
    assert_eq!(error.report().created(), server.contact_count() as u64);
    assert!(error.report().created() > 9_000);
    assert_eq!(error.error().kind(), ErrorKind::Input);
    assert!(
        error
            .error()
            .to_string()
            .contains("the file could not be read from here on: the disk is gone")
    );
}

#[test]
fn a_file_that_cannot_be_read_to_its_end_says_so_in_its_last_row() {
    let long = format!("email\n{}", "a@x.io\n".repeat(20_000));

    let rows: Vec<_> = CsvRows::new(io::Cursor::new(long).chain(Broken))
        .unwrap()
        .collect();

    let last = rows.last().unwrap();
    assert!(
        last.unreadable_reason()
            .unwrap()
            .contains("the disk is gone")
    );
    assert!(rows.len() > 9_000);
    assert!(
        rows[..rows.len() - 1]
            .iter()
            .all(|row| row.contact().is_some())
    );
}

#[test]
fn a_reader_that_gives_one_byte_at_a_time_gives_the_same_rows() {
    struct Dribble(io::Cursor<Vec<u8>>);
    impl Read for Dribble {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = buffer.len().min(1);
            self.0.read(&mut buffer[..length])
        }
    }
    let text = "\u{feff}email;note\r\na@x.io;\"1\r\n2\"\r\nb@x.io;\r\n";

    let dribbled: Vec<_> = CsvRows::new(Dribble(io::Cursor::new(text.into())))
        .unwrap()
        .collect();

    assert_eq!(dribbled, rows(text));
    assert_eq!(CsvRows::new(io::Cursor::new(text)).unwrap().count(), 2);
}

#[test]
fn properties_in_one_json_column_join_those_with_columns_of_their_own() {
    let text = "email,plan,properties,seats\na@x.io,pro,{},\nb@x.io,,{},\nc@x.io,pro,\"{\"\"postcode\"\":\"\"3\"\"}\",3\n";

    let rows = rows(text);

    assert_eq!(json_of(&rows[0])["properties"], json!({"plan": "pro"}));
    assert_eq!(json_of(&rows[1])["properties"], json!({}));
    let all = json!({"plan": "pro", "postcode": "3", "seats": 3});
    assert_eq!(json_of(&rows[2])["properties"], all);
}

/// The columns of a Mailchimp export, before those of one of its three files.
const MAILCHIMP: &str = "Email Address,First Name,Last Name,Address,Phone Number,MEMBER_RATING,OPTIN_TIME,OPTIN_IP,\
    CONFIRM_TIME,CONFIRM_IP,LATITUDE,LONGITUDE,GMTOFF,DSTOFF,TIMEZONE,CC,REGION,LAST_CHANGED,LEID,EUID,NOTES,TAGS";

fn mailchimp(columns: &str, cells: &str) -> Vec<ImportRow> {
    let ada = "ada@x.io,Ada,Lovelace,,,2,2024-01-01 10:00:00,10.0.0.1,2024-01-01 10:00:00,10.0.0.1,\
        52.5,13.4,1,2,Europe/Berlin,DE,BE,2024-02-01 10:00:00,123,abc,,\"\"\"vip\"\"\"";
    rows(format!("{MAILCHIMP}{columns}\n{ada}{cells}\n"))
}

#[test]
fn a_file_of_mailchimp_with_any_column_of_the_unsubscribed_or_cleaned_opts_out_everybody() {
    for column in ["UNSUB_CAMPAIGN_TITLE", "UNSUB_REASON", "CLEAN_CAMPAIGN_ID"] {
        let rows = mailchimp(&format!(",{column}"), ",text");

        assert_eq!(rows.len(), 1);
        let everything = OptOut::Everything(OptOutReason::Manual);
        assert_eq!(rows[0].opt_outs(), [everything], "{column}");
    }
}

#[test]
fn the_three_files_of_mailchimp_are_imported_as_they_are() {
    let subscribed = mailchimp("", "");
    let unsubscribed = mailchimp(
        ",UNSUB_TIME,UNSUB_CAMPAIGN_TITLE,UNSUB_CAMPAIGN_ID,UNSUB_REASON,UNSUB_REASON_OTHER",
        ",2024-03-01 10:00:00,Spring,77,NORMAL,too many",
    );
    let cleaned = mailchimp(
        ",CLEAN_TIME,CLEAN_CAMPAIGN_TITLE,CLEAN_CAMPAIGN_ID",
        ",2024-03-01 10:00:00,Spring,77",
    );

    let ada = json!({"email": "ada@x.io", "first_name": "Ada", "last_name": "Lovelace",
        "properties": {"TAGS": "\"vip\""}});
    let everything = [OptOut::Everything(OptOutReason::Manual)];
    for (file, opt_outs) in [
        (subscribed, &[][..]),
        (unsubscribed, &everything),
        (cleaned, &everything),
    ] {
        assert_eq!(json_of(&file[0]), ada);
        assert_eq!(file[0].opt_outs(), opt_outs);
    }
}

#[test]
fn the_channels_that_somebody_allowed_at_mailchimp_are_not_taken_for_groups() {
    let read = |columns: &str| {
        let file = format!("{MAILCHIMP},{columns}\n");
        CsvInput::new(io::Cursor::new(file)).unwrap()
    };
    let refusal = |columns| read(columns).rows().unwrap_err().to_string();

    let alone = refusal("Marketing Permissions");
    let with_another = refusal("Marketing Permissions,Status");

    let advice = "the column \"Marketing Permissions\" lists the channels that a person allowed";
    assert!(alone.starts_with(advice), "{alone}");
    assert!(
        alone.contains("move the rows") && !alone.contains("groups:"),
        "{alone}"
    );
    assert!(with_another.contains("who opted out: [\"Status\"]"));
    assert!(with_another.contains(advice), "{with_another}");
    let ignored = read("Marketing Permissions").map("Marketing Permissions", Column::Ignored);
    assert!(ignored.unwrap().rows().is_ok());
}

#[test]
fn the_groups_that_somebody_did_not_choose_are_opt_outs_and_an_unknown_group_is_refused() {
    let file = "Email Address,Newsletters\nada@x.io,\"Weekly News, Offers\"\nbob@x.io,Offers\ncy@x.io,\n\
        di@x.io,\"Offers, Daily\"\n";
    let read = |file: String, map: bool| {
        let input = CsvInput::new(io::Cursor::new(file)).unwrap();
        let groups = || "groups:Weekly News:news,Offers:offers".parse().unwrap();
        let input = match map {
            true => input.map("Newsletters", groups()).unwrap(),
            false => input,
        };
        let (_, column) = input.columns().last().unwrap();
        assert_eq!(column, &groups());
        input.rows().unwrap()
    };
    let opt_outs =
        |rows: CsvRows| -> Vec<Vec<OptOut>> { rows.map(|row| row.opt_outs().to_vec()).collect() };
    let out = |topic: &str| OptOut::Topic(topic.to_owned());

    let rows = opt_outs(read(file.to_owned(), true));
    // Rejects have the mapping in their first line.
    let lines = file.lines().enumerate().map(|(n, line)| match n {
        0 => "line,code,message,retryable,Email Address,\
            \"Newsletters (groups:Offers:offers,Weekly News:news)\"\n"
            .to_owned(),
        _ => format!("{n},opt_out_failed,,no,{line}\n"),
    });
    let rejects = lines.collect::<String>();
    let again = opt_outs(read(rejects, false));

    let expected = [
        vec![],
        vec![out("news")],
        vec![out("news"), out("offers")],
        // This row is not readable.
        vec![],
    ];
    assert_eq!(rows, expected);
    assert_eq!(again, expected);
    let unreadable = read(file.to_owned(), true).last().unwrap();
    assert!(unreadable.unreadable_reason().is_some());
}

#[test]
fn the_tags_of_mailchimp_are_read_as_groups_and_an_unknown_one_is_named() {
    let file = "Email Address,TAGS\nada@x.io,\"\"\"Weekly News\"\",\"\"Deals\"\"\"\nbob@x.io,\"\"\"Deals\"\"\"\n\
        cy@x.io,\"\"\"VIP\"\"\"\ndi@x.io,\"\"\"Deals\"\n";
    let groups = "groups:Weekly News:news,Deals:deals".parse().unwrap();

    let input = CsvInput::new(file.as_bytes()).unwrap();
    let input = input.map("TAGS", groups).unwrap();
    let rows: Vec<_> = input.rows().unwrap().collect();

    assert!(rows[0].contact().is_some());
    assert_eq!(rows[0].opt_outs(), []);
    assert_eq!(rows[1].opt_outs(), [OptOut::Topic("news".to_owned())]);
    let reasons = rows.iter().filter_map(ImportRow::unreadable_reason);
    assert_eq!(
        reasons.collect::<Vec<_>>(),
        [
            "column \"TAGS\": the group \"VIP\" is not in the mapping; add it, with an empty topic if it has none",
            "column \"TAGS\": a quotation mark in the cell is not closed",
        ]
    );
}

#[test]
fn the_exports_of_brevo_and_sendgrid_need_no_mapping() {
    let brevo = "CONTACT ID;EMAIL;FIRSTNAME;LASTNAME;SMS;EXT_ID;ADDED_TIME;MODIFIED_TIME\n\
        1;ada@x.io;Ada;Lovelace;;k-1;01-02-2024 10:00:00;01-02-2024 10:00:00\n";
    let sendgrid = "EMAIL,FIRST_NAME,LAST_NAME,CITY,ALTERNATE_EMAILS,PHONE_NUMBER,CREATED_AT,UPDATED_AT,CONTACT_ID\n\
        ada@x.io,Ada,Lovelace,,,,2024-02-01,2024-02-01,9f\n";

    let names = json!({"email": "ada@x.io", "first_name": "Ada", "last_name": "Lovelace"});
    assert_eq!(json_of(&rows(sendgrid)[0]), names);
    let mut with_key = names;
    with_key["properties"] = json!({"EXT_ID": "k-1"});
    assert_eq!(json_of(&rows(brevo)[0]), with_key);
}

#[test]
fn a_list_of_people_who_must_not_get_mail_opts_out_all_of_them() {
    // What these services export for global opt-outs, blocked contacts and spam reports.
    for text in [
        "email,created\nada@x.io,1700000000\n",
        "EMAIL;ADDED_TIME;MODIFIED_TIME\nada@x.io;;\n",
        "ip,email,created\n10.0.0.1,ada@x.io,1700000000\n",
        "email,subscribed\nada@x.io,yes\n",
        "email,unsubscribed\nada@x.io,no\n",
    ] {
        let input = CsvInput::new(io::Cursor::new(text)).unwrap().opt_out_all();

        let row = input.rows().unwrap().next().unwrap();
        assert_eq!(
            row.opt_outs(),
            [OptOut::Everything(OptOutReason::Manual)],
            "{text}"
        );
    }
}

#[test]
fn all_are_opted_out_also_after_the_delimiter_was_set() {
    let input = CsvInput::new("email*x\na@x.io*1\n".as_bytes()).unwrap();

    let mut rows = input.opt_out_all().delimiter('*').unwrap().rows().unwrap();

    assert_eq!(rows.next().unwrap().opt_outs().len(), 1);
}

#[test]
fn what_the_caller_said_about_columns_is_not_lost_when_the_delimiter_is_set() {
    let open = |text: &'static str| CsvInput::new(text.as_bytes()).unwrap();
    let topic = || Column::Topic("hints".to_owned());
    let text = "email;Weekly Hints;seats\na@x.io;no;3\n";

    let mapped = open(text).map("Weekly Hints", topic()).unwrap();
    let mapped = mapped.ignore_unmapped().delimiter(';').unwrap();
    let refusing = open(text).refuse_unmapped().delimiter(';').unwrap();
    // With the guessed delimiter, the second column has another name.
    let unknown = open("email,a;b\n").map("a;b", topic()).unwrap();
    let unknown = unknown.delimiter(';').unwrap_err();

    assert_eq!(
        shown(&mapped),
        [
            "email is email",
            "Weekly Hints is topic:hints",
            "seats is ignore"
        ]
    );
    let row = mapped.rows().unwrap().next().unwrap();
    assert_eq!(row.opt_outs(), [OptOut::Topic("hints".to_owned())]);
    assert_eq!(row.contact(), Some(&NewContact::new("a@x.io")));
    let refused = refusing.rows().unwrap_err().to_string();
    assert!(refused.contains("Weekly Hints"), "{refused}");
    assert_eq!(unknown.kind(), ErrorKind::Input);
    assert_eq!(
        unknown.to_string(),
        "with this delimiter: the file has no column \"a;b\"; it has \"email,a\", \"b\""
    );
}

#[test]
fn a_column_of_cleaned_contacts_is_no_property_unless_the_caller_says_so() {
    for name in ["Clean", "cleaned", "CLEAN_TIME"] {
        assert!(
            refusal(format!("email,{name}\na@x.io,yes\n")).contains(name),
            "{name}"
        );
    }
}

#[test]
fn columns_of_people_who_opted_out_are_not_ignored_while_everybody_in_the_file_is_subscribed() {
    let open = |header: &str| {
        let file = format!("email,{header}\na@x.io,2024-03-01,2024-01-01\n");
        CsvInput::new(io::Cursor::new(file)).unwrap()
    };
    let rows = |input: CsvInput| -> Result<Vec<ImportRow>, String> {
        let rows = input.rows().map_err(|error| error.to_string());
        Ok(rows?.collect())
    };
    for name in [
        "UNSUB_TIME",
        "clean_date",
        "Clean_Campaign_Id",
        "Unsub Time",
    ] {
        let input = || open(&format!("{name},Plan"));
        let map = |column: Column| input().map(name, column).unwrap();

        for refused in [
            input(),
            input().ignore_unmapped(),
            map(Column::Ignored),
            map(Column::Ignored).ignore_unmapped(),
        ] {
            let refused = rows(refused).unwrap_err();
            let said = format!("bounced: [{name:?}]; call `opt_out_all`");
            assert!(refused.contains(&said), "{refused}");
            assert!(refused.contains("if all may, map these"), "{refused}");
        }
        for (allowed, opt_outs) in [
            (input().opt_out_all(), 1),
            (map(Column::Ignored).opt_out_all(), 1),
            (map(Column::Property("left".to_owned())), 0),
        ] {
            let rows = rows(allowed).unwrap();
            assert_eq!(rows[0].opt_outs().len(), opt_outs, "{name}");
        }
    }
    // Another column says who opted out, so the date may be ignored, but not silently.
    let undecided = rows(open("UNSUB_TIME,unsubscribed")).unwrap_err();
    assert!(undecided.contains("map each of them"), "{undecided}");
    let both = open("UNSUB_TIME,unsubscribed").map("UNSUB_TIME", Column::Ignored);
    assert!(rows(both.unwrap()).is_ok());
}

#[test]
fn a_column_with_states_in_its_first_rows_is_no_property_unless_the_caller_says_so() {
    let many = "b@x.io,unsubscribed,7\n".repeat(20_000);
    let active = "a@x.io,Active,1\n".repeat(9);
    let one_is_out = format!("{active}b@x.io,Unsubscribed,2\n");
    for (rows, is_doubted) in [
        ("a@x.io,Subscribed,1\nb@x.io,UNSUBSCRIBED,2\n", true),
        ("a@x.io,,1\nb@x.io,opted-out,2\n", true),
        ("a@x.io,pro,1\nb@x.io,bounced,2\nc@x.io,cleaned,3\n", true),
        (&*many, true),
        (&*active, true),
        (&*one_is_out, true),
        ("a@x.io,pro,1\nb@x.io,Opted out,2\nc@x.io,free,3\n", true),
        ("a@x.io,pro,1\nb@x.io,abgemeldet,2\nc@x.io,free,3\n", true),
        (
            "a@x.io,pending,1\nb@x.io,Unconfirmed,2\nc@x.io,aktiv,3\n",
            true,
        ),
        ("a@x.io,pro,1\nb@x.io,active,2\nc@x.io,free,3\n", false),
        ("a@x.io,pro,1\nb@x.io,bounced,2\n", false),
        ("a@x.io,,1\nb@x.io,,2\n", false),
        ("", false),
    ] {
        let text = format!("email,List,seats\n{rows}");
        let input = || CsvInput::new(io::Cursor::new(text.clone())).unwrap();

        let error = input().rows().err().map(|error| error.to_string());

        let is_named = error
            .as_ref()
            .is_some_and(|text| text.contains("[\"List\"]"));
        assert_eq!(
            (error.is_some(), is_named),
            (is_doubted, is_doubted),
            "{error:?}"
        );
        let property = Column::Property("List".to_owned());
        let mapped = input().map("List", property).unwrap().rows().unwrap();
        assert_eq!(mapped.count(), rows.lines().count());
    }
    // The same in rejects, but not if another column says who opted out, as in an export.
    let rejects = "line,code,message,retryable,email,List\n2,x,y,true,a@x.io,unsubscribed\n";
    assert!(refusal(rejects).contains("[\"List\"]"));
    let input = CsvInput::new(rejects.as_bytes()).unwrap().opt_out_all();
    assert_eq!(input.rows().unwrap().count(), 1);
    for column in ["unsubscribed", "opted in"] {
        let export = format!("email,{column},List\na@x.io,yes,unsubscribed\n");
        assert_eq!(rows(export).len(), 1);
    }
    assert_eq!(rows("email,property:List\na@x.io,unsubscribed\n").len(), 1);
}

#[test]
fn the_last_row_in_memory_may_be_incomplete_and_decides_nothing() {
    // Only the first 64 KiB are looked at, and the cell at their end is `unsubscribed by its owner`.
    let start = "email,note,List\na@x.io,";
    let padding = "p".repeat(64 * 1024 - start.len() - ",unsubscribed".len());
    let text = format!("{start}{padding},unsubscribed by its owner\n");

    assert_eq!(rows(text).len(), 1);
}

#[test]
fn columns_that_are_not_mapped_can_be_ignored_but_those_of_consent_cannot() {
    let columns = |header: &str| {
        let input = CsvInput::new(io::Cursor::new(format!("{header}\n"))).unwrap();
        let input = input.map("plan", Column::Property("plan".to_owned()));
        let input = input.unwrap().ignore_unmapped();
        let columns = input.columns().map(|(_, column)| column.to_string());
        (columns.collect::<Vec<_>>().join(" "), input.rows().is_ok())
    };

    assert_eq!(
        columns("email,First name,plan,salary,property:x,topic:news"),
        (
            "email first_name property:plan ignore property:x topic:news".to_owned(),
            true
        )
    );
    assert!(!columns("email,plan,Accepts Marketing").1);
}

#[test]
fn a_file_that_is_named_as_a_list_of_opt_outs_is_not_imported_as_anything_else() {
    let folder = std::env::temp_dir().join(format!("audience-names-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let header = format!("{MAILCHIMP}\n");
    for (name, text, is_refused) in [
        ("nonsubscribed_segment_export_1.csv", &*header, true),
        ("subscribed_segment_export_1.csv", &header, false),
        ("Global Unsubscribes.csv", "email,created\n", true),
        ("suppression_bounces.csv", "email,created\n", true),
        ("unsubscribed.rejects.csv", "unsubscribed,email\n", false),
        ("nonsubscribed_1.csv", "email,topic:news\n", true),
        ("nonsubscribed_2.csv", "email,topics\n", true),
        ("nonsubscribed_3.csv", "email,unsubscribe_reason\n", false),
        ("list.csv", "email\n", false),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        let open = || CsvInput::open(&path).unwrap();

        let refused = open().rows().err().map(|error| error.to_string());
        let refused_later = open().delimiter(',').unwrap().rows().is_err();

        assert_eq!(
            (refused.is_some(), refused_later),
            (is_refused, is_refused),
            "{name}"
        );
        // A web program may show it.
        assert!(refused.is_none_or(|text| text.contains("opt_out_all") && !text.contains(name)));
        assert!(open().opt_out_all().rows().is_ok(), "{name}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// Opens files of a folder together, and shows what their columns are.
fn open_all(
    folder: &Folder,
    names: &[&str],
    columns: &[(&str, Column)],
) -> Result<Vec<String>, String> {
    let paths = names.iter().map(|name| folder.path(name));
    let opened = CsvInput::open_all(paths, columns).map_err(|error| {
        assert!(matches!(error.kind(), ErrorKind::Input | ErrorKind::Config));
        error.to_string()
    })?;
    let shown = opened.into_iter().map(|(path, input)| {
        let name = path.rsplit(['/', '\\']).next().unwrap();
        format!("{name}: {}", shown(&input).join(", "))
    });
    Ok(shown.collect())
}

#[test]
fn of_several_files_those_whose_columns_opt_everybody_out_come_first_and_each_is_mapped() {
    let folder = Folder::new("open-all");
    for (name, text) in [
        ("a.csv", "email,Hints,LEID,EUID\n"),
        ("b.csv", "email,plan\n"),
        ("c.csv", "email,Hints,UNSUB_TIME,LEID,EUID\n"),
        ("d.csv", "email,CLEAN_TIME,LEID,EUID\n"),
    ] {
        folder.file(name, text);
    }
    let columns = [
        ("Hints", Column::Topic("hints".to_owned())),
        ("plan", Column::Ignored),
    ];

    let names = ["a.csv", "b.csv", "c.csv", "d.csv"];
    let opened = open_all(&folder, &names, &columns).unwrap();

    let opts_out = |name: &str| CsvInput::open(folder.path(name)).unwrap().opts_out_all();
    assert_eq!(names.map(opts_out), [false, false, true, true]);
    assert_eq!(
        opened,
        [
            "c.csv: unsubscribed is unsubscribed, email is email, Hints is topic:hints, UNSUB_TIME is ignore, LEID is \
             ignore, EUID is ignore",
            "d.csv: unsubscribed is unsubscribed, email is email, CLEAN_TIME is ignore, LEID is ignore, EUID is ignore",
            "a.csv: email is email, Hints is topic:hints, LEID is ignore, EUID is ignore",
            "b.csv: email is email, plan is ignore",
        ]
    );
}

#[test]
fn of_several_files_the_error_names_the_file_or_the_column_that_none_has() {
    let folder = Folder::new("open-all-errors");
    folder.file("a.csv", "email,plan\n");
    folder.file("b.csv", "email,x,x\n");
    folder.file("c.csv", "email,UNSUB_TIME\n");
    let open = |names: &[&str], columns: &[_]| open_all(&folder, names, columns).unwrap_err();
    let ignored = |name| [(name, Column::Ignored)];

    let absent = open(&["a.csv", "none.csv"], &[]);
    let twice = open(&["a.csv", "b.csv"], &ignored("x"));
    let misspelled = open(&["a.csv", "c.csv"], &ignored("paln"));

    assert!(absent.contains("none.csv: could not open"), "{absent}");
    assert!(
        twice.contains("b.csv: the file has two columns \"x\""),
        "{twice}"
    );
    let columns = "the files have \"email\", \"plan\", \"UNSUB_TIME\"";
    assert_eq!(
        misspelled,
        format!("no file has a column \"paln\"; {columns}")
    );
    let nowhere = open(&[], &ignored("plan"));
    assert_eq!(nowhere, "no file has a column \"plan\"; there is no file");
}

#[test]
fn a_column_that_nobody_mapped_is_refused_on_request() {
    let open = |text: &str| CsvInput::new(io::Cursor::new(text.to_owned())).unwrap();
    let check = |input: CsvInput| input.refuse_unmapped().rows().map(Iterator::count);
    let text = "email,First name,seats,Hints,\na@x.io,Ada,1,no,\n";

    let error = check(open(text)).unwrap_err().to_string();
    let mapped = |input: CsvInput| {
        let input = input
            .map("seats", Column::Property("seats".to_owned()))
            .unwrap();
        input
            .map("Hints", Column::Topic("hints".to_owned()))
            .unwrap()
    };

    let columns =
        "these columns are not mapped, and their names are not known: [\"seats\", \"Hints\"]";
    assert!(error.starts_with(columns), "{error}");
    assert_eq!(check(mapped(open(text))).unwrap(), 1);
    assert_eq!(check(open(text).ignore_unmapped()).unwrap(), 1);
}
