use std::cell::RefCell;
use std::collections::HashMap;

use rusqlite::{Connection, Statement};

/// A connection with the statements that were prepared on it.
pub(super) struct Session<'c> {
    connection: &'c Connection,
    statements: RefCell<HashMap<&'static str, Statement<'c>>>,
}

impl<'c> Session<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self {
            connection,
            statements: RefCell::default(),
        }
    }

    pub(super) fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// Runs a statement, which is prepared the first time only.
    pub(super) fn statement<T>(
        &self,
        sql: &'static str,
        run: impl FnOnce(&mut Statement<'c>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let prepared = self.statements.borrow_mut().remove(sql);
        let mut statement = match prepared {
            Some(statement) => statement,
            None => self.connection.prepare(sql)?,
        };
        let result = run(&mut statement);
        self.statements.borrow_mut().insert(sql, statement);
        result
    }

    pub(super) fn execute(&self, sql: &'static str) -> rusqlite::Result<()> {
        self.statement(sql, |statement| statement.execute(()).map(drop))
    }
}
