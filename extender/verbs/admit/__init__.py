"""The admission verb: an AdmissionReview in, an AdmissionReview out. Objects are plain JSON and never take a typed form."""
