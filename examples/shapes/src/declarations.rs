//! Declarations that live in the service's store, each with its finalizers.
