"""Folders with the certificates of a front or a worker, of an authority that a test makes."""

import trustme


def folder_of(authority: trustme.CA, folder):
    """A folder with ca.pem, and a new certificate of the authority with its key."""
    folder.mkdir()
    issued = authority.issue_cert("worker.test", "127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    for pem in issued.cert_chain_pems:
        pem.write_to_path(str(folder / "cert.pem"), append=True)
    return folder
