"""Which errors of Spark say that a catalog or a store is away, and not that something is wrong. Pure.

What Java's clients raise has few classes, and a text. Only the class of a cause and the begin of its message
are looked at: what follows may be a row's value.
"""

from __future__ import annotations

import re

from penstock.errors import TargetRefused, TransientError
from penstock.failures.messages import is_sparks, text_of
from penstock.failures.trace import causes

_OUTAGE = re.compile(
    # Iceberg's client of REST catalogs: no answer, or one that is not as its protocol says
    r"RESTException: Error occurred while processing|"
    r"RESTException: Unable to process \(code: (?:1\d\d|3\d\d|408|425|429|5\d\d)|"
    r"RESTException: Unable to process \(code: \d+, type: null\): <(?:!doctype )?html|"
    r"ServiceUnavailableException: |ServiceFailureException: |"
    # S3: https://docs.aws.amazon.com/sdk-for-java/latest/developer-guide/handling-exceptions.html
    r"SdkClientException: (?:Unable to execute HTTP request|Unable to unmarshall|Data read has a different|"
    r"Acquire operation took longer)|RetryableException: |ApiCall(?:Attempt)?TimeoutException: |"
    r"(?:S3Exception|AwsServiceException): [^\n]{0,400}Status Code: (?:408|429|5\d\d)|"
    # Glue: https://docs.aws.amazon.com/glue/latest/webapi/CommonErrors.html, and answers that are not Glue's
    r"(?:GlueException|InternalServiceException): [^\n]{0,400}Status Code: (?:408|429|5\d\d)|"
    r"GlueException: Service returned HTTP status code (?!40[013])\d|ThrottlingException: |"
    r"OperationTimeoutException: |ResourceNotReadyException: |FederationSourceRetryableException: |"
    # databases and Hive
    r"(?:CommunicationsException|SQLTransientConnectionException|SQLNonTransientConnectionException|"
    r"SQLRecoverableException|TTransportException|TProtocolException): |"
    r"MetaException: \(message:Got exception: org\.apache\.thrift\.\w+\.(?:TTransport|TProtocol)Exception|"
    r"(?:MetaException: \(message:Got exception: org\.apache\.thrift\.)?"
    r"TApplicationException:? [^\n]{0,100}out of sequence response|"
    # the network, while a connection is made
    r"(?:ConnectException|UnknownHostException|NoRouteToHostException|HttpHostConnectException|"
    r"ConnectTimeoutException): ",
    re.IGNORECASE,
)
_NOT_THE_NETWORK = re.compile(
    r"SSLHandshakeException: |SSLPeerUnverifiedException: |ValidatorException: |CertificateException: |"
    r"NotAuthorizedException: |ForbiddenException: |ClassNotFoundException: "
)
"""Causes that no wait mends, of errors that begin as if it was an outage."""

_REFUSAL = re.compile(
    r"NotAuthorizedException: |ForbiddenException: |AccessDeniedException: |"
    r"(?:S3Exception|AwsServiceException|GlueException): [^\n]{0,400}Status Code: (?:401|403)|"
    r"(?:S3Exception|GlueException): The (?:provided token has expired|request signature we calculated|"
    r"security token included in the request)|"
    r"SSLHandshakeException: |SSLPeerUnverifiedException: |SQLInvalidAuthorizationSpecException: ",
    re.IGNORECASE,
)
"""Causes of an account that is refused, or of a certificate that is not trusted."""


def passes(error: BaseException) -> bool:
    """Whether the same step may succeed later, though nobody changes anything here."""
    if not is_sparks(error):
        return isinstance(error, TransientError)
    said = _said(error)
    return any(map(_OUTAGE.match, said)) and not any(map(_NOT_THE_NETWORK.match, said))


def refuses(error: BaseException) -> bool:
    """Whether a target, its catalog or its store does not let this account in, or not any more."""
    if not is_sparks(error):
        return isinstance(error, TargetRefused)
    return any(map(_REFUSAL.match, _said(error)))


def _said(error: BaseException) -> list[str]:
    return [f"{one.kind.rpartition('.')[2]}: {one.message}" for one in causes(text_of(error))]
