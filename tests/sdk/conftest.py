"""Where the gateway under test is: TANDEM_URL, as `tandem up` prints it after `ready`."""

import os

import anthropic
import openai
import pytest

MODEL = "SmolLM2-135M-Instruct"


@pytest.fixture(scope="session")
def url():
    return os.environ["TANDEM_URL"]


@pytest.fixture
def client(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture
def claude(url):
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=60)


@pytest.fixture
def model():
    return MODEL
