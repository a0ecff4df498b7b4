from django.apps import AppConfig


class OpenFaceConfig(AppConfig):
    name = "openface"
    default_auto_field = "django.db.models.BigAutoField"
