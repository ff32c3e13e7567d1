//! An extractor for actix-web 4.
