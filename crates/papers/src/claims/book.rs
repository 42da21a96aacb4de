//! The book of one paper: every claim goes in once, and it closes only when all are in.

use std::collections::BTreeMap;

use wp_report::claim::Judged;

use super::{Claim, ClaimError, Claims, Measured};

/// Collects the verdicts of one paper.
#[derive(Debug)]
pub struct Book<'a> {
    paper: String,
    claims: Vec<&'a Claim>,
    judged: BTreeMap<String, Judged>,
    /// Claims of our own, in the order they came.
    own: Vec<Judged>,
}

impl<'a> Book<'a> {
    /// Opens the book of a paper. Errors: `Unknown` if the file has no claim of it.
    pub fn open(claims: &'a Claims, paper: &'a str) -> Result<Book<'a>, ClaimError> {
        let claims: Vec<&Claim> = claims.of(paper).collect();
        if claims.is_empty() {
            return Err(ClaimError::Unknown(paper.to_owned()));
        }
        let (judged, own) = (BTreeMap::new(), Vec::new());
        Ok(Book { paper: paper.to_owned(), claims, judged, own })
    }

    /// Judges a measurement by the claim with this id and writes it down.
    ///
    /// Errors: `Unknown`, `Twice`, and those of [`Measured::judge`].
    pub fn emit(&mut self, id: &str, measured: Measured) -> Result<&Judged, ClaimError> {
        let claim = self.claims.iter().find(|claim| claim.id == id);
        let claim = *claim.ok_or_else(|| ClaimError::Unknown(id.to_owned()))?;
        if self.judged.contains_key(id) {
            return Err(ClaimError::Twice(id.to_owned()));
        }
        let judged = measured.judge(claim)?;
        Ok(self.judged.entry(id.to_owned()).or_insert(judged))
    }

    /// Adds a claim that the file does not have: our own, judged by its own band.
    ///
    /// Errors: `Twice` if the id is taken, by the file too; `Unknown` if it names another paper.
    pub fn emit_own(&mut self, claim: &Claim, measured: Measured) -> Result<(), ClaimError> {
        if claim.paper != self.paper {
            return Err(ClaimError::Unknown(claim.paper.clone()));
        }
        let taken = self.claims.iter().any(|c| c.id == claim.id)
            || self.own.iter().any(|judged| judged.id == claim.id);
        if taken {
            return Err(ClaimError::Twice(claim.id.clone()));
        }
        self.own.push(measured.judge(claim)?);
        Ok(())
    }

    /// Ids that are still to be emitted, in file order.
    pub fn open_ids(&self) -> Vec<String> {
        let open = self.claims.iter().filter(|claim| !self.judged.contains_key(&claim.id));
        open.map(|claim| claim.id.clone()).collect()
    }

    /// Closes the book: the paper's claims in file order, then our own.
    ///
    /// Errors: `Missing` with every id that was not emitted.
    pub fn close(mut self) -> Result<Vec<Judged>, ClaimError> {
        let open = self.open_ids();
        if !open.is_empty() {
            return Err(ClaimError::Missing(open));
        }
        let mut all: Vec<Judged> =
            self.claims.iter().filter_map(|claim| self.judged.remove(&claim.id)).collect();
        all.append(&mut self.own);
        Ok(all)
    }
}
