from django.apps import AppConfig


class RuntimeProxyConfig(AppConfig):
    name = "runtime_proxy"
    default_auto_field = "django.db.models.BigAutoField"
