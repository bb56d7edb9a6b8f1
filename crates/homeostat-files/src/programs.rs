//! What is known of single programs, one file each.

pub mod haproxy;
