//! How SQLite finds rows: a lookup must not become slower with the number of remembered ids.

use rusqlite::Connection;

use super::entries::{BACKLOG, COUNT_PARKED, DUE, PARKED, PURGE};
use super::row::{FIND, SAVE};
use super::schema::SCHEMA;

fn plan(sql: &str) -> String {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(SCHEMA).unwrap();
    let mut statement = connection
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .unwrap();
    let mut steps = statement.raw_query();
    let mut plan = String::new();
    while let Some(step) = steps.next().unwrap() {
        plan += &step.get::<_, String>(3).unwrap();
        plan += "\n";
    }
    plan
}

#[test]
fn every_lookup_uses_an_index_and_none_sorts() {
    for (sql, expected) in [
        (FIND, "USING PRIMARY KEY (endpoint=? AND id=?)"),
        (
            DUE,
            "USING COVERING INDEX audience_inbox_due (endpoint=? AND due<?)",
        ),
        (
            PARKED,
            "USING INDEX audience_inbox_parked (endpoint=? AND id>?)",
        ),
        (
            PURGE,
            "USING COVERING INDEX audience_inbox_forget (forget_at>? AND forget_at<?)",
        ),
        (
            BACKLOG,
            "USING COVERING INDEX audience_inbox_due (endpoint=?)",
        ),
        (
            COUNT_PARKED,
            "USING COVERING INDEX audience_inbox_parked (endpoint=?)",
        ),
        (SAVE, ""),
    ] {
        let plan = plan(sql);

        assert!(plan.contains(expected), "{sql}\n{plan}");
        let is_slow = plan.contains("SCAN") || plan.contains("TEMP B-TREE");
        assert!(!is_slow, "{sql}\n{plan}");
    }
}
