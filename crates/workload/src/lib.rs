//! Programs: fio jobs, which users have already as files, filebench workload models
//! ([`filebench`]), a database's inserts ([`innodb`]), MobiBench's files ([`mobibench`]), and short
//! lists of system calls ([`program`]).
//!
//! [`fio::parse`] makes jobs of text, with a diagnostic for everything that is not understood;
//! [`fio::Sequence`] gives the operations of a job in fio's order; [`fio::run`] does them on a
//! mounted file system in virtual time; [`fio::report`] writes what fio's JSON would say.
//!
//! Invariant: no option is ignored in silence. The table [`fio::OPTIONS`] says of each what it does
//! here: exactly what fio does, nearly that (and where not), or nothing (an error).

pub mod filebench;
pub mod fio;
pub mod innodb;
pub mod mobibench;
pub mod program;
