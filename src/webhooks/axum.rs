//! An extractor for axum 0.8.
